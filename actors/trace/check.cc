#include "actors/trace/check.h"

#include <map>
#include <utility>

#include "actors/trace/front_rules.h"
#include "actors/trace/lora_rules.h"
#include "actors/trace/streams.h"
#include "actors/trace/witness.h"

namespace troupe::actors::trace {
namespace {

constexpr std::uint32_t kMostSlots = 1u << 16;
constexpr std::uint64_t kMostEntries = 1u << 24;  // of all block tables
constexpr std::uint32_t kMostIds = 1u << 24;      // of a vocabulary
constexpr std::uint32_t kMostWaiting = 64;        // messages of one sender for one receiver (R11)

class Checker {
 public:
  Checker(const Recording& r, const CoreConfigs& c)
      : recording_(r),
        configs_(c),
        witness_(c.model, c.device.ring_slots, r.header.from_start, !r.header.redacted),
        streams_(c.model, r.header.from_start, !r.header.redacted),
        front_(r.header.from_start, !r.header.redacted) {}

  CheckOutcome run() {
    CheckOutcome out;
    for (std::size_t i = 0; i < recording_.events.size() && !broken(); ++i) {
      const Event& e = recording_.events[i];
      if (e.head.kind == RecordKind::lost) {
        out.note = "from message " + std::to_string(i) + " on nothing was checked: the recorder had no room for " +
                   std::to_string(e.head.seq) + " records";
        break;
      }
      at_ = i;
      // A replica that was restarted alone is recorded apart from then on.
      const bool foreign = configs_.part == kWhole && part_of(e.head.seq) != kWhole;
      if (e.head.kind == RecordKind::sent) {
        ++out.messages;
        if (!foreign) sent(e);
      } else if (const Event* s = recording_.sent(e.head.seq)) {
        if (!foreign) received(e, *s);
      }
    }
    if (!broken() && torn_down_ && out.note.empty()) streams_.finish();
    if (broken()) out.finding = finding();
    if (!recording_.header.from_start)
      out.note += std::string(out.note.empty() ? "" : "; ") + "it begins in the middle of a run: what began before was taken as it came";
    if (recording_.header.redacted) out.note += std::string(out.note.empty() ? "" : "; ") + "it is redacted: ids were not compared";
    out.requests = is_front() ? front_.requests() : streams_.requests();
    out.tokens = is_front() ? front_.tokens() : streams_.tokens();
    return out;
  }

 private:
  bool broken() const {
    return !what_.empty() || !witness_.violation().empty() || !streams_.violation().empty() || !lora_.violation().empty() ||
           !front_.violation().empty();
  }
  bool is_front() const { return configs_.part == kFront; }
  // Whether who gets it is in another recording.
  bool elsewhere(const Event& e) const {
    const Sender to = e.head.to.sender;
    if (configs_.part >= kFirstReplica) return to == Sender::dispatcher || to == Sender::delivery;
    return (is_front() || restarted_) && e.head.from.sender == Sender::dispatcher && to != Sender::delivery;
  }
  Finding finding() const {
    const std::string& text = !what_.empty()                  ? what_
                              : !witness_.violation().empty() ? witness_.violation()
                              : !streams_.violation().empty() ? streams_.violation()
                              : !front_.violation().empty()   ? front_.violation()
                                                              : lora_.violation();
    const std::size_t colon = text.find(": ");
    return {text.substr(0, colon), colon == std::string::npos ? text : text.substr(colon + 2), at_};
  }
  void break_rule(std::string what) {
    if (what_.empty()) what_ = std::move(what);
  }

  void sent(const Event& e) {
    const bool by_scheduler = e.head.from.sender == Sender::scheduler, by_router = e.head.from.sender == Sender::router;
    if (e.head.to.sender != Sender::runtime && e.head.to.sender != Sender::delivery && e.head.from.sender != Sender::runtime &&
        !(e.head.from == e.head.to) && !elsewhere(e)) {
      std::uint32_t& waiting = waiting_[{e.head.from.sender, e.head.to.sender}];
      const std::uint32_t limit =
          kMostWaiting +
          (e.head.from.sender == Sender::dispatcher || e.head.from.sender == Sender::lora ? configs_.dispatcher.max_live : 0);
      if (++waiting > limit)
        break_rule("R11: " + std::to_string(waiting) + " messages of one sender wait for " + std::string(name(e.head.to.sender)));
    }
    std::visit(
        [&](const auto& m) {
          using M = std::decay_t<decltype(m)>;
          if constexpr (requires { DeviceFacts{m.facts}; }) facts(m.facts);
          if (is_front()) return front(m);
          if constexpr (std::is_same_v<M, StartReplica>) restarted_ = true;
          if constexpr (std::is_same_v<M, Admit>) {
            const bool here = m.attempt == 0 || configs_.part != kWhole;
            streams_.admitted(m, here && e.head.from.sender == Sender::dispatcher);
            if (e.head.from.sender == Sender::lora) lora_.sent(m);
          } else if constexpr (std::is_same_v<M, LoraAnswer>) {
            if (e.head.from.sender == Sender::lora) lora_.sent(m);
          } else if constexpr (std::is_same_v<M, Opened>) {
            witness_.opened(m);
            streams_.opened(m);
          } else if constexpr (std::is_same_v<M, ChangeTable>) {
            witness_.change(m);
          } else if constexpr (std::is_same_v<M, RecordEvent>) {
            witness_.record(m);
          } else if constexpr (std::is_same_v<M, ReadState>) {
            witness_.read_state(m);
          } else if constexpr (std::is_same_v<M, CopyBlocks>) {
            witness_.copy(m);
          } else if constexpr (std::is_same_v<M, Saved>) {
            witness_.saved(m);
          } else if constexpr (std::is_same_v<M, Enqueue>) {
            if (by_router) witness_.enqueue(*m.step);
          } else if constexpr (std::is_same_v<M, Launch>) {
            if (by_scheduler) streams_.launched(*m.plan);
          } else if constexpr (std::is_same_v<M, Apply>) {
            if (by_scheduler) streams_.applied(m.effect);
          } else if constexpr (std::is_same_v<M, Deliver>) {
            streams_.delivered(*m.batch, witness_);
          } else if constexpr (std::is_same_v<M, Ended>) {
            streams_.ended(m);
          } else if constexpr (std::is_same_v<M, Accepted>) {
            if (m.error.code == ErrorCode::none) {
              refusals_ = 0;
            } else if (++refusals_ > 16 + 2 * std::uint64_t{configs_.scheduler.max_batch}) {
              break_rule("R10: launches are refused in a loop, last by " + label(m.error));
            }
          } else if constexpr (std::is_same_v<M, TornDown>) {
            torn_down(m.facts);
          }
          if constexpr (std::is_same_v<M, Settled> || std::is_same_v<M, Applied> || std::is_same_v<M, Opened> || std::is_same_v<M, Saved>)
            refusals_ = 0;
          if (error_of(m) == ErrorCode::device_lost) lost_ = true;
          if constexpr (requires { DeviceError{m.error}; }) {
            if (by_router && m.error.code == ErrorCode::bad_plan)
              break_rule("R2: the router's books and the scheduler's plan disagree: " + m.error.what);
          }
        },
        e.message);
  }

  void received(const Event& e, const Event& s) {
    if (const auto it = waiting_.find({s.head.from.sender, e.head.to.sender}); it != waiting_.end() && it->second > 0) --it->second;
    const Sender to = e.head.to.sender;
    if (to == Sender::scheduler) streams_.handled();
    std::visit(
        [&](const auto& m) {
          using M = std::decay_t<decltype(m)>;
          if (is_front()) return front_takes(m, to);
          if constexpr (std::is_same_v<M, LoraSubmit> || std::is_same_v<M, Admit>) {
            if (to == Sender::lora) lora_.taken(m);
          } else if constexpr (std::is_same_v<M, Launch>) {
            if (to == Sender::router) witness_.launch(m);
          } else if constexpr (std::is_same_v<M, Apply>) {
            if (to == Sender::router) witness_.apply(m.effect);
          } else if constexpr (std::is_same_v<M, Completed>) {
            if (to == Sender::router) witness_.completed(m);
          } else if constexpr (std::is_same_v<M, EventRecorded>) {
            witness_.recorded(m);
          } else if constexpr (std::is_same_v<M, CopyDone>) {
            witness_.copy_done(m);
          } else if constexpr (std::is_same_v<M, Settled>) {
            streams_.settled(m);
          } else if constexpr (std::is_same_v<M, Sampled>) {
            streams_.sampled(m);
          } else if constexpr (std::is_same_v<M, Halt>) {
            streams_.halted();
          }
        },
        s.message);
  }

  // Of several replicas: what the dispatcher and delivery send, and take up.
  template <class M>
  void front(const M& m) {
    if constexpr (std::is_same_v<M, SubmitReply>) {
      front_.accepted(m);
    } else if constexpr (std::is_same_v<M, Admit>) {
      front_.admitted(m);
    } else if constexpr (std::is_same_v<M, StopReplica>) {
      front_.fenced(m.replica);
    } else if constexpr (std::is_same_v<M, Reclaimed>) {
      front_.reclaimed(m);
    }
  }
  template <class M>
  void front_takes(const M& m, Sender to) {
    if constexpr (std::is_same_v<M, ReplicaLost>) {
      front_.fenced(m.replica);
    } else if constexpr (std::is_same_v<M, Reclaim>) {
      front_.reclaim(m);
    } else if constexpr (std::is_same_v<M, EndRequests>) {
      front_.ended(m);
    } else if constexpr (std::is_same_v<M, Deliver>) {
      if (to == Sender::delivery) front_.delivered(*m.batch);
    }
  }

  void facts(const DeviceFacts& f) {
    if (f.total_blocks == 0 && f == DeviceFacts{}) return;  // of an answer that has none
    const std::uint64_t sum = std::uint64_t{f.free_blocks} + f.used_blocks + f.cached_blocks + f.fenced_blocks;
    if (sum != f.total_blocks)
      break_rule("R8: " + std::to_string(f.free_blocks) + " free, " + std::to_string(f.used_blocks) + " used, " +
                 std::to_string(f.cached_blocks) + " cached and " + std::to_string(f.fenced_blocks) + " fenced blocks are not the " +
                 std::to_string(f.total_blocks) + " that there are");
  }

  void torn_down(const DeviceFacts& f) {
    torn_down_ = true;
    if (!lost_ && (f.free_blocks != f.total_blocks || f.free_slots != f.total_slots || f.free_ring_slots != f.ring_slots))
      break_rule("R8: after teardown the pools are not whole: " + label(f));
  }

  const Recording& recording_;
  const CoreConfigs& configs_;
  Witness witness_;
  Streams streams_;
  LoraRules lora_;
  FrontRules front_;
  bool restarted_ = false;  // a replica; its next life has a recording of its own
  std::map<std::pair<Sender, Sender>, std::uint32_t> waiting_;
  std::uint64_t refusals_ = 0;
  bool torn_down_ = false;
  bool lost_ = false;
  std::size_t at_ = 0;
  std::string what_;
};

}  // namespace

bool plausible(const CoreConfigs& c) {
  const ModelInfo& m = c.model;
  if (m.block_size == 0 || m.n_slots == 0 || m.n_slots > kMostSlots || m.max_rows == 0 || m.max_rows > kMostSlots ||
      m.kv_blocks > kMostEntries || m.max_loras > kMostSlots || m.vocab_size > kMostIds)
    return false;
  if ((std::uint64_t{m.context_length} / m.block_size + 1) * m.n_slots > kMostEntries) return false;
  return c.device.ring_slots >= 1 && c.device.ring_slots <= 64 && c.device.copy_places <= 64 &&
         c.device.prefill_slots < c.device.ring_slots && c.scheduler.depth <= 64 && c.scheduler.max_batch <= kMostSlots &&
         c.router.depth <= 64 && c.dispatcher.max_live <= kMostEntries;
}

Result<CheckOutcome> check(const Recording& recording) {
  if (!recording.configs) {
    return Error{ErrorCode::unsupported,
                 "the recording was made by a build whose cores are set up in another way; check it with that build"};
  }
  if (!plausible(*recording.configs)) return Error{ErrorCode::bad_file, "the recording's header has sizes that no runtime has"};
  return Checker(recording, *recording.configs).run();
}

}  // namespace troupe::actors::trace
