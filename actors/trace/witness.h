// A second set of books, kept from the messages alone: what the simulator and `troupe trace check` compare the router with.
// It knows which steps are open, which blocks and ring slots they name, what every fed row has to read, and which requests
// met a fault.
//
// It checks R2 (a row's position follows from its epoch, and the version of recurrent state that it reads is the one of that
// position; only settled states are kept as snapshots, and a sequence begins from one of its own position and adapter), R3 (no block and
// no version is written that another sequence, a save or a copy may still read, and no block went back that a row still reads), R4 (a
// ring slot has one user), R6 (a fed row reads the cell of the row that it names), R7 (who may fail), R9 (what a step in flight names
// stays in the adapter table) and R12 (a copy on another stream waits for an event that is recorded; steps of two streams have no
// sequence in common).
//
// What it is given may come from a file that anybody made: an index out of range is a violation like any other.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/protocol.h"

namespace troupe::actors::trace {

class Witness {
 public:
  // `from_start` false: the messages begin in the middle of a run, so a sequence that was opened before is taken as it
  // first shows. `tokens` false: ids are not what they were (a redacted recording) and are not compared.
  Witness(const ModelInfo& model, std::uint32_t ring_slots, bool from_start = true, bool tokens = true);

  // The router's messages, in the order in which it handles them; Enqueue and Opened as it sends them.
  void opened(const Opened& m);
  void launch(const Launch& m);
  void apply(const Effect& effect);
  void enqueue(const LaunchedStep& step);
  void completed(const Completed& m);
  void change(const ChangeTable& m);
  void record(const RecordEvent& m);
  void recorded(const EventRecorded& m);  // as the router handles it
  void read_state(const ReadState& m);
  void copy(const CopyBlocks& m);
  void copy_done(const CopyDone& m);
  void saved(const Saved& m);

  // How often a fault met a row of the request.
  std::uint32_t hits(const RequestId& id) const { return id.generation < hits_.size() ? hits_[id.generation] : 0; }
  const std::string& violation() const { return violation_; }
  std::uint32_t in_flight() const;

 private:
  static constexpr std::uint32_t kMostPlaces = 64;

  struct Version {
    std::uint32_t end = 0;  // as of this position
    std::uint32_t version = 0;
  };
  struct Sequence {  // by slot
    SeqId seq;
    RequestId request;
    bool live = false;
    bool adopted = false;  // opened before the first message
    std::uint32_t settled = 0;
    std::uint32_t epoch = 0;
    std::uint32_t launched = 0;
    std::uint32_t blocks = 0;
    std::vector<BlockId> table;
    std::vector<Version> versions;            // of its recurrent state: the settled one, and those of its rows in flight
    std::uint32_t behind = DeviceRow::kNone;  // the snapshot that it was opened behind, until it is told to begin from it
    AdapterRef adapter;                       // of its last row
  };
  struct OpenRow {
    SeqId seq;
    RequestId request;
    bool fed = false;
    Ticket from;
    std::uint32_t from_row = 0;
    AdapterRef adapter;
    std::vector<BlockId> blocks;
    std::uint32_t state_in = DeviceRow::kNone;
    std::uint32_t state_out = DeviceRow::kNone;
  };
  struct Slot {
    bool busy = false;       // from the launch until its result is out and its logits are read
    bool in_flight = false;  // until it has settled
    Ticket ticket;
    std::uint32_t stream = kComputeStream;
    std::vector<OpenRow> rows;  // the first n_rows
    std::uint32_t n_rows = 0;
  };
  struct Past {  // what a settled step's cells held
    Ticket ticket;
    bool failed = false;
    std::vector<Readback> rows;
  };
  struct Save {  // the blocks that are still to be copied, and the version of the state behind them
    SeqId seq;
    std::vector<BlockId> blocks;
    std::uint32_t settled = 0;
    std::optional<std::uint32_t> version{};
    std::uint32_t parts = 0;            // of it that were copied
    bool known = true;                  // false: no step has named its blocks yet
    std::uint32_t place = 0xFFFFFFFFu;  // of its copies, once there is one
  };
  struct Copy {
    Ticket ticket;
    bool out = false;
    SeqId seq;  // out: that is saved
    std::vector<BlockId> blocks;
    bool beside = false;  // on another stream than the steps'
    std::uint32_t state = DeviceRow::kNone;
    bool last_part = false;
  };
  struct Snapshot {         // by version: the state that was kept in it, until it is written again
    std::uint32_t end = 0;  // 0: none
    AdapterRef adapter;
  };
  struct Restore {  // by place: what comes back, until the next one begins there
    SeqId seq;
    std::uint32_t positions = 0;
    std::uint32_t version = DeviceRow::kNone;
    bool open = false;  // its sequence is not there yet
  };
  struct Order {           // by place
    Ticket mark;           // that is to be recorded
    bool marked = false;   // it is, and no copy has waited for it
    bool ordered = false;  // the save or restore that the place is at has
  };
  Order* order_of(std::uint32_t place);
  void order(const CopyBlocks& m);
  void keep(const Effect& effect, SeqId seq);
  void begin(const SsmSnapshotRestore& effect);
  void save_state(const CopyBlocks& m, Save& save);
  void restore_state(const CopyBlocks& m);
  std::string owner(std::uint32_t version) const;
  std::string other_user(std::uint32_t version) const;
  Sequence* find(SeqId seq);
  void written(const std::string& at, BlockId block, SeqId by);
  void broken(std::string what);
  void hit(const RequestId& id);
  // The first block that a position reads: behind it none is needed.
  std::uint32_t first_block(std::uint32_t position) const;
  bool named(const Sequence& s, BlockId block) const;

  void recur(Sequence& s, const DeviceRow& d, OpenRow& o, const std::string& at);
  void feed(const Row& row, const DeviceRow& d, OpenRow& o, const std::string& at);

  const std::uint32_t block_size_;
  const std::uint32_t window_;
  const bool recurrent_;
  const bool from_start_;
  const bool tokens_;
  std::vector<Sequence> sequences_;
  std::vector<Slot> ring_;
  std::array<Past, 32> past_;
  std::vector<Save> saves_;
  std::vector<Copy> copies_;  // in flight, or may be
  std::vector<Order> orders_;
  std::vector<Restore> restores_;
  std::vector<std::uint32_t> hits_;
  std::vector<std::uint32_t> adapters_;  // generation in the table, by slot
  std::vector<Snapshot> snapshots_;
  std::vector<std::uint32_t> state_ends_;  // by version of recurrent state: as of which position it was written last
  std::uint32_t newest_ = 0;               // generation that was shown
  Shared<StepPlan> plan_;
  std::uint64_t last_step_ = 0;
  std::string violation_;
};

}  // namespace troupe::actors::trace
