// One device stream with a model on it, simulated: steps run in order, when the World says so; with `copy_stream`, copies run on
// a second one, in their order, ordered against the steps by what they wait for alone; with `prefill_stream`, so do the steps of
// prefill, and nothing orders them against the others. The model's next token
// depends on every token before it through a hash that it keeps in paged "KV" memory and reads back through the block
// table: that of the position before, and that of an earlier one or with a window of all in it. So a block that was given
// away too early, a wrong table entry, a missing write or a wrong position shows up as a wrong token; a row whose window
// has lost a block is poisoned. Feed cells have tags and errors as DESIGN §5.2 says.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/host/sample.h"
#include "messages/protocol.h"

namespace troupe::sim {

struct SimDeviceOptions {
  std::uint32_t vocab = 64;
  std::uint32_t context = 96;
  std::uint32_t block_size = 4;
  std::uint32_t window = 0;      // 0, or at least 2: the state is computed from the one before it
  std::uint32_t ssm_states = 0;  // 0: no recurrent layers; else versions of their state, which every choice depends on too
  std::uint32_t ssm_parts = 2;   // that a version of it takes up, each as long as a block
  std::uint32_t kv_blocks = 64;
  std::uint32_t n_slots = 16;
  std::uint32_t max_rows = 16;
  std::uint32_t max_step_tokens = 32;
  std::uint32_t max_logits_rows = 4;
  std::uint32_t max_depth = 8;
  bool feed = true;
  bool samples = false;         // on the device, by the host's kernel
  bool append_history = false;  // a fault: the ids that penalties count are kept in the order of the steps, over-runs and all
  std::uint32_t max_loras = 0;
  std::uint32_t spill_places = 0;
  std::uint32_t spill_blocks = 2;  // that a place's page-locked memory holds
  bool copy_stream = false;
  bool prefill_stream = false;  // then the latter half of the ring is its
  // Faults, by step number.
  std::set<std::uint64_t> fail_steps;                          // fails before it did anything: its table entries are lost too
  std::set<std::uint64_t> fail_late;                           // fails after its table entries and half its rows
  std::set<std::uint64_t> event_errors;                        // runs, and asking its event fails
  std::set<std::uint64_t> readback_errors;                     // runs, and its readback fails
  std::set<std::uint64_t> enqueue_errors;                      // is not enqueued
  std::set<std::uint64_t> half_enqueued;                       // is enqueued in part: half its rows run, and its event is never recorded
  std::uint64_t hang_at = 0;                                   // from this step on nothing completes; 0 = never
  std::set<std::pair<std::uint64_t, std::uint32_t>> nan_rows;  // (step number, row) whose logits are all NaN
  std::set<std::uint64_t> copy_errors;                         // by the count of copies: fails when it is run
  std::set<std::uint64_t> copy_refused;                        // is not enqueued
  std::set<std::uint64_t> copy_half;                           // is enqueued, and its event is never recorded
  std::set<std::uint64_t> mark_errors;                         // by the count of marks: is not recorded
  std::uint64_t lose_at = 0;                                   // from this step on the device is lost; 0 = never
};

ModelInfo sim_model(const SimDeviceOptions& options);

// The model: the state after a token, the sum over the states of a window that one more makes, and the masked choice.
// Without a window, what comes before a position is the state of the last one and that of sim_earlier(position).
// `adapter`: what the adapter's file holds; 0 = the base model.
std::uint32_t sim_earlier(std::uint32_t position);
std::uint64_t sim_state(std::uint64_t before, std::uint32_t position, Token token, std::uint64_t adapter = 0);
// The recurrent state after a position whose state is `state`, and what a choice is made from with it.
std::uint64_t sim_recur(std::uint64_t before, std::uint64_t state);
std::uint64_t sim_mixed(std::uint64_t state, std::uint64_t recurrent);
std::uint64_t sim_adapter(const std::string& path);
std::uint64_t sim_attend(std::uint64_t sum, std::uint32_t position, std::uint64_t state);
Token sim_choice(std::uint64_t state, std::uint32_t vocab, RowMask mask);
void sim_logits(std::uint64_t state, std::uint32_t vocab, float* out);

class SimDevice {
 public:
  SimDevice(const SimDeviceOptions& options, std::uint32_t ring_slots);

  std::vector<SlotHandles> ring() const;
  std::vector<CopyHandles> places();
  // The error, if enqueueing fails.
  DeviceError enqueue(const Enqueue& m);
  DeviceError enqueue(const CopyBlocks& m);
  Error record(const RecordEvent& m);  // on the steps' stream
  // Whether the oldest work of a stream can go on.
  bool runnable() const { return runnable(queue_) || runnable(prefills_) || copies_runnable(); }
  bool hung() const { return (!queue_.empty() && !runnable(queue_)) || (!prefills_.empty() && !runnable(prefills_)); }
  // A step that is enqueued in part has its event behind that: it is answered when that has come. Where prefill has a stream,
  // nothing else would say when it is over.
  bool marks_end(const LaunchedStep& step) const { return options_.prefill_stream && options_.half_enqueued.count(step.ticket.step) > 0; }
  // Runs it; `pick` chooses the stream where both can. None: it has no event that anybody asks for.
  std::optional<EventDone> run_head(std::uint64_t pick);
  // Adapters: into memory that the table does not show (an error if the path begins with "bad"), and the table.
  Error load(const LoadAdapter& m);
  Error change(const ChangeTable& m);
  // Reads a ring slot as the device actor does: n_rows entries and a view of n_logits rows.
  StepResult read(const ReadSlot& m);

  // How often each fault struck.
  struct Faults {
    std::uint64_t failed_early = 0, failed_late = 0, nan = 0, event = 0, readback = 0, enqueue = 0, half = 0, lost = 0, copy = 0, mark = 0;
    std::uint64_t missing = 0;  // rows that read or wrote where their table has no block
  };
  const Faults& faults() const { return faults_; }
  const std::string& violation() const { return violation_; }

 private:
  struct Cell {
    Token id = 0;
    CellStatus status = CellStatus::ok;
    std::uint32_t tag = 0;
  };
  struct Slot {
    std::vector<Cell> cells;
    std::vector<Readback> readback;
    std::vector<float> logits;
    std::vector<ReadLogprobs> logprobs;
  };
  struct Work {  // a step, a mark, or a copy
    Shared<LaunchedStep> step{};
    CopyBlocks copy{};
    std::optional<std::uint32_t> mark{};  // of this place
    std::uint64_t marks_before = 0;       // copy: how often its place's event has to be complete
  };
  struct Mark {  // by place; how often its event was recorded, and was complete
    std::uint64_t recorded = 0, complete = 0;
  };
  bool runnable(const std::deque<Work>& steps) const {
    return !steps.empty() && !(options_.hang_at != 0 && steps.front().step && steps.front().step->ticket.step >= options_.hang_at);
  }
  bool copies_runnable() const {
    return !copies_.empty() && marks_[copies_.front().copy.handles.place].complete >= copies_.front().marks_before;
  }
  std::optional<EventDone> run_copy(const CopyBlocks& m);
  void run_row(const LaunchedStep& step, std::uint32_t i);
  void sample_row(const LaunchedStep& step, const RowSample& sample, std::uint64_t state);
  void keep_id(std::uint32_t slot, std::uint32_t position, Token id);
  // A version some of whose words belong to another one gives a state that nobody expects.
  std::uint64_t recurrent_of(std::uint32_t version) const;
  void keep_recurrent(std::uint32_t version, std::uint64_t state);
  std::size_t state_words() const { return std::size_t{options_.ssm_parts} * options_.block_size; }
  std::uint64_t& kv_at(std::uint32_t slot, std::uint32_t position);
  // Whether the table has the blocks of all that a row at positions [begin, end) reads and writes.
  bool has_blocks(std::uint32_t slot, std::uint32_t begin, std::uint32_t end) const;

  const SimDeviceOptions options_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<std::uint64_t> kv_;         // [block][offset]
  std::vector<std::uint64_t> recurrent_;  // [version][ssm_parts * block_size]: the state, and words that follow from it
  std::vector<Slot> slots_;
  std::vector<Token> history_;           // [slot of a table][position]: ids, as kernels::FeedArgs::history
  std::vector<std::uint32_t> appended_;  // by slot of a table: for append_history
  kernels::ThreadPool threads_{1};
  kernels::Sample sample_{threads_};
  std::vector<std::vector<std::uint64_t>> staging_;  // by place
  std::deque<Work> queue_, prefills_, copies_;       // the latter two: with a stream of their own
  std::vector<Mark> marks_;
  bool lost_ = false;
  struct Adapter {
    std::uint64_t content = 0;
    bool shown = false;
  };
  std::vector<Adapter> adapters_;  // by slot; 0 = the base model
  std::string violation_;
  Faults faults_;
};

}  // namespace troupe::sim
