#include "actors/trace/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/sampler/core.h"
#include "actors/spill/core.h"
#include "actors/trace/check.h"
#include "actors/trace/stand_ins.h"

namespace troupe::actors::trace {
namespace {

template <class M>
void encode(Bytes& out, M m) {
  if constexpr (requires { m.ctx; }) m.ctx = {};
  out.clear();
  Encoder(out).put(m);
}

bool equal(const Bytes& a, const Bytes& b) { return a.size() == b.size() && std::equal(a.data(), a.data() + a.size(), b.data()); }

template <class M, class Core, class Out>
concept Takes = requires(Core& core, const M& m, Out& out) {
  core.on(m, TimeNs{}, out);
};

class Replayer {
 public:
  Replayer(const Recording& r, const CoreConfigs& c)
      : recording_(r),
        dispatcher_(c.dispatcher, c.model),
        scheduler_(c.scheduler, c.model),
        router_(c.router, c.model),
        device_(c.device.ring_slots, c.device.step_timeout, c.device.copy_places, c.device.prefill_slots),
        lora_(c.lora, c.model),
        vocab_size_(c.model.vocab_size),
        sampler_(c.model.vocab_size),
        files_(std::make_shared<StandInFiles>()),
        spill_(c.spill, c.model, files_) {
    for (std::uint32_t i = 0; i < r.events.size(); ++i) {
      const RecordHead& h = r.events[i].head;
      if (h.kind == RecordKind::sent && h.cause != 0) sent_by_[h.cause].push_back(i);
      if (h.kind == RecordKind::received) last_receipt_[static_cast<int>(h.to.sender) & 63] = i;
    }
  }

  ReplayOutcome run(const ReplayOptions& options) {
    for (std::uint32_t i = 0; i < recording_.events.size() && !out_.difference; ++i) {
      const Event& e = recording_.events[i];
      if (e.head.kind == RecordKind::lost) {
        out_.note = fmt::format("it ends at message {}: the recorder had no room for {} records there", i, e.head.seq);
        break;
      }
      if (e.head.kind != RecordKind::received) continue;
      if (!feed(i)) continue;
      if (options.until != 0 && e.head.seq == options.until) break;
    }
    out_.state = state();
    return std::move(out_);
  }

 private:
  // Whether a core handled the receipt at `i`.
  bool feed(std::uint32_t i) {
    const Event& e = recording_.events[i];
    switch (e.head.to.sender) {
      case Sender::dispatcher:
        return feed(i, dispatcher_, dispatcher_out_);
      case Sender::scheduler:
        return feed(i, scheduler_, scheduler_out_);
      case Sender::router:
        return feed(i, router_, router_out_);
      case Sender::device:
        return feed(i, device_, device_out_);
      case Sender::lora:
        return feed(i, lora_, lora_out_);
      case Sender::sampler:
        return feed(i, sampler_, sampler_out_);
      case Sender::spill:
        return feed(i, spill_, spill_out_);
      default:
        return false;
    }
  }

  template <class Core, class Out>
  bool feed(std::uint32_t i, Core& core, Out& out) {
    const RecordHead& head = recording_.events[i].head;
    bool& ended = ended_[static_cast<int>(head.to.sender) & 63];
    if (ended) return false;
    const Event* sent = recording_.sent(head.seq);
    if (sent == nullptr) {  // it was cut off: what this core does from here on cannot be known
      ended = true;
      out_.note = fmt::format("{} ends at {}: that message is not in the recording", name(head.to.sender), seq_label(head.seq));
      return false;
    }
    expected_.clear();
    if (const auto it = sent_by_.find(head.seq); it != sent_by_.end()) {
      for (const std::uint32_t k : it->second)
        if (recording_.events[k].head.from == head.to) expected_.push_back(k);
      for (const std::uint32_t k : expected_) out_.recorded += made_by<Out>(recording_.events[k].head.type) ? 1 : 0;
    }
    last_ = last_receipt_[static_cast<int>(head.to.sender) & 63] == i;
    at_ = i;
    bool known = false;
    std::visit(
        [&](const auto& m) {
          if constexpr (Takes<std::decay_t<decltype(m)>, Core, Out>) {
            known = true;
            if constexpr (requires { m.piece; } || std::is_same_v<std::decay_t<decltype(m)>, Sample>) {
              auto lent = m;
              if (!lend(lent)) return differ(troupe::label(m) + " is larger than any that a runtime sends");
              core.on(lent, head.time, out);
            } else {
              core.on(m, head.time, out);
            }
            compare(out);
            if constexpr (requires { core.deliver(out); }) {
              core.deliver(out);
              compare(out);
            }
          }
        },
        sent->message);
    if (!known) return false;
    ++out_.handled;
    for (const std::uint32_t k : expected_)
      if (made_by<Out>(recording_.events[k].head.type))
        differ(fmt::format("the recording has {}, and the core did not send it", label(recording_.events[k].message)));
    return true;
  }

  // Puts what the recording does not hold in the message's place.
  bool lend(Sample& m) {
    const auto* answer = expected<Sampled>();
    SampleBatch batch = *m.batch;
    const bool lent = logits_.lend(batch, answer != nullptr ? answer->batch.get() : nullptr, vocab_size_);
    m.batch = Shared<SampleBatch>::of(std::move(batch));
    return lent;
  }
  bool lend(WriteState& m) { return lend_state<StateWritten>(m); }
  bool lend(ReadState& m) { return lend_state<StateRead>(m); }
  template <class Answer, class M>
  bool lend_state(M& m) {
    const auto* answer = expected<Answer>();
    files_->expect(answer != nullptr ? answer->error : Error{});
    return memory_.lend(m.piece);
  }
  // The first of the type that the handling that runs has sent; null: there is none.
  template <class M>
  const M* expected() const {
    for (const std::uint32_t k : expected_)
      if (const auto* m = std::get_if<M>(&recording_.events[k].message)) return m;
    return nullptr;
  }

  // Whether messages of the type come out of the core and not out of its shell.
  template <class Out>
  static bool made_by(std::uint16_t type) {
    return []<class... Ms>(const std::variant<Ms...>*, std::uint16_t t) { return ((kWanted<Ms> == t) || ...); }(
               static_cast<const typename Out::Item*>(nullptr), type);
  }
  // As what the shell sends it.
  template <class M>
  static constexpr std::uint16_t kWanted = kTypeOf<std::conditional_t<std::is_same_v<M, ReadSlot>, Completed, M>>;

  template <class Out>
  void compare(Out& out) {
    out.drain([&](auto&& m) { compare_one(m); });
  }

  template <class M>
  void compare_one(const M& m) {
    if (out_.difference) return;
    const auto found =
        std::find_if(expected_.begin(), expected_.end(), [&](std::uint32_t k) { return recording_.events[k].head.type == kWanted<M>; });
    if (found == expected_.end()) {
      if (!last_) differ(fmt::format("the core sends {}, and the recording does not have it", troupe::label(m)));
      return;
    }
    const Event& e = recording_.events[*found];
    expected_.erase(found);
    ++out_.compared;
    if constexpr (std::is_same_v<M, ReadSlot>) {
      const Completed& done = std::get<Completed>(e.message);
      const bool same = done.ring_slot == m.ring_slot && done.result->ticket == m.ticket &&
                        (m.error.code == ErrorCode::none || done.result->error.code == m.error.code);
      if (!same) differ(fmt::format("the core has {} read, and the recording has {}", troupe::label(m), troupe::label(done)));
    } else if constexpr (std::is_same_v<M, Sampled>) {
      if (!same_choices(*m.batch, *std::get<Sampled>(e.message).batch))
        differ(fmt::format("the core answers {} other rows, or others of them, than the recording has ({})", troupe::label(*m.batch),
                           seq_label(e.head.seq)));
    } else {
      encode(a_, m);
      encode(b_, std::get<M>(e.message));
      if (!equal(a_, b_))
        differ(fmt::format("the core sends {}, and the recording has {} ({})", troupe::label(m), label(e.message), seq_label(e.head.seq)));
    }
  }

  void differ(std::string what) {
    if (!out_.difference) out_.difference = {at_, std::move(what)};
  }

  // {"a": 1, "b": 2}
  static std::string object(std::initializer_list<std::pair<const char*, std::uint64_t>> fields, const std::string& check = "-") {
    std::string out;
    for (const auto& [name, value] : fields) out += fmt::format("{}\"{}\": {}", out.empty() ? "" : ", ", name, value);
    if (check != "-") out += ", \"check\": \"" + check + "\"";
    return "{" + out + "}";
  }

  std::string state() const {
    const SchedulerStats& s = scheduler_.stats();
    const DeviceFacts f = router_.facts();
    const RouterStats r = router_.stats();
    const std::string scheduler = object({{"waiting", scheduler_.waiting()},
                                          {"running", scheduler_.running()},
                                          {"in_flight", scheduler_.in_flight()},
                                          {"last_settled", static_cast<std::uint64_t>(scheduler_.last_settled())},
                                          {"steps", s.steps},
                                          {"steps_ahead", s.steps_ahead},
                                          {"rows", s.rows},
                                          {"fed_rows", s.fed_rows},
                                          {"device_sampled", s.device_sampled},
                                          {"tokens", s.tokens},
                                          {"overruns", s.overruns},
                                          {"redone_rows", s.redone_rows},
                                          {"stale_results", s.stale_results},
                                          {"failed_rows", s.failed_rows},
                                          {"retries", s.retries},
                                          {"preemptions", s.preemptions},
                                          {"resumes", s.resumes},
                                          {"kv_waits", s.kv_waits},
                                          {"ring_waits", s.ring_waits}},
                                         scheduler_.check());
    const std::string router = object({{"in_flight", f.in_flight},
                                       {"total_blocks", f.total_blocks},
                                       {"free_blocks", f.free_blocks},
                                       {"used_blocks", f.used_blocks},
                                       {"cached_blocks", f.cached_blocks},
                                       {"fenced_blocks", f.fenced_blocks},
                                       {"total_slots", f.total_slots},
                                       {"free_slots", f.free_slots},
                                       {"ring_slots", f.ring_slots},
                                       {"free_ring_slots", f.free_ring_slots},
                                       {"releases_now", r.releases_now},
                                       {"releases_fenced", r.releases_fenced},
                                       {"kv_refusals", r.kv_refusals},
                                       {"ring_refusals", r.ring_refusals},
                                       {"prefix_hits", r.prefix_hits}},
                                      router_.check());
    const std::string device = object({{"watched", device_.watched()}, {"lost", device_.lost() ? 1 : 0}, {"ignored", device_.ignored()}});
    const std::string lora = object({{"waiting", lora_.waiting()}, {"busy", lora_.busy() ? 1 : 0}}, lora_.check());
    const std::string spill = object({{"files", spill_.files()}, {"bytes", spill_.bytes()}});
    return fmt::format(
        "{{\"dispatcher\": {},\n \"scheduler\": {},\n \"router\": {},\n \"device\": {},\n \"lora\": {},\n \"sampler\": {},\n \"spill\": "
        "{}}}",
        object({{"live", dispatcher_.live()}}), scheduler, router, device, lora, object({{"requests", sampler_.requests()}}), spill);
  }

  const Recording& recording_;
  DispatcherCore dispatcher_;
  SchedulerCore scheduler_;
  RouterCore router_;
  DeviceCore device_;
  LoraCore lora_;
  const std::uint32_t vocab_size_;
  SamplerCore sampler_;
  const std::shared_ptr<StandInFiles> files_;
  SpillCore spill_;
  StandInMemory memory_;
  StandInLogits logits_;
  DispatcherOutbox dispatcher_out_;
  SchedulerOutbox scheduler_out_;
  RouterOutbox router_out_;
  DeviceOutbox device_out_;
  LoraOutbox lora_out_;
  SamplerOutbox sampler_out_;
  SpillOutbox spill_out_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> sent_by_;  // cause -> what its handling sent
  std::uint32_t last_receipt_[64] = {};
  bool ended_[64] = {};
  std::vector<std::uint32_t> expected_;  // what the handling that runs sent, less what was compared
  bool last_ = false;                    // of this core's receipts: the recording may end within its handling
  std::size_t at_ = 0;
  Bytes a_, b_;
  ReplayOutcome out_;
};

}  // namespace

Result<ReplayOutcome> replay(const Recording& recording, const ReplayOptions& options) {
  const auto no = [](std::string what) { return Error{ErrorCode::unsupported, std::move(what)}; };
  if (recording.header.redacted) return no("the recording is redacted: without prompts and ids the cores cannot be run on it");
  if (!recording.header.from_start)
    return no(
        "the recording begins in the middle of a run (the flight recorder had forgotten the beginning), and the cores begin at its start");
  if (!recording.configs) return no("the recording was made by a build whose cores are set up in another way; replay it with that build");
  if (recording.unknown != 0)
    return no(std::to_string(recording.unknown) +
              " messages are of a form that this build does not know; replay it with the build that made it");
  if (!plausible(*recording.configs)) return Error{ErrorCode::bad_file, "the recording's header has sizes that no runtime has"};
  return Replayer(recording, *recording.configs).run(options);
}

}  // namespace troupe::actors::trace
