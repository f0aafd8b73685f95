// One device stream with a model on it, simulated: steps run in order, when the World says so. The model's next token
// depends on every token before it through a hash that it keeps in paged "KV" memory and reads back through the block
// table; so a block that was given away too early, a wrong table entry, a missing write or a wrong position shows up
// as a wrong token. Feed cells have tags and errors as DESIGN §5.2 says.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "messages/protocol.h"

namespace troupe::sim {

struct SimDeviceOptions {
  std::uint32_t vocab = 64;
  std::uint32_t context = 96;
  std::uint32_t block_size = 4;
  std::uint32_t kv_blocks = 64;
  std::uint32_t n_slots = 16;
  std::uint32_t max_rows = 16;
  std::uint32_t max_step_tokens = 32;
  std::uint32_t max_logits_rows = 4;
  std::uint32_t max_depth = 8;
  bool feed = true;
  std::set<std::uint64_t> fail_steps;                          // step numbers that fail as a whole
  std::set<std::pair<std::uint64_t, std::uint32_t>> nan_rows;  // (step number, row) whose logits are all NaN
  std::uint64_t lose_at = 0;                                   // from this step on the device is lost; 0 = never
};

ModelInfo sim_model(const SimDeviceOptions& options);

// The model: the state after a token, and the masked choice that it makes there.
std::uint64_t sim_state(std::uint64_t before, std::uint32_t position, Token token);
Token sim_choice(std::uint64_t state, std::uint32_t vocab, RowMask mask);
void sim_logits(std::uint64_t state, std::uint32_t vocab, float* out);

class SimDevice {
 public:
  SimDevice(const SimDeviceOptions& options, std::uint32_t ring_slots);

  std::vector<SlotHandles> ring() const;
  void enqueue(const Enqueue& m) { queue_.push_back(m.step); }
  std::size_t queued() const { return queue_.size(); }
  // Runs the oldest step that was enqueued.
  EventDone run_head();
  // Reads a ring slot as the device actor does: n_rows entries and a view of n_logits rows.
  StepResult read(const ReadSlot& m) const;

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
  };
  void run_row(const LaunchedStep& step, std::uint32_t i);

  const SimDeviceOptions options_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<std::uint64_t> kv_;  // [block][offset]
  std::vector<Slot> slots_;
  std::deque<Shared<LaunchedStep>> queue_;
};

}  // namespace troupe::sim
