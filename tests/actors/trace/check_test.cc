// The rules that no switch of the simulator breaks, broken by hand: the check names each of them, and where.
#include "actors/trace/check.h"

#include <gtest/gtest.h>

#include "actors/trace/writer.h"

namespace troupe::actors::trace {
namespace {

// A recording that is written message by message.
class Made {
 public:
  Made() : writer_([this](const std::uint8_t* block, std::size_t size) { bytes_.insert(bytes_.end(), block, block + size); }) {
    CoreConfigs c;
    c.device.ring_slots = 3;
    c.model.context_length = 64;
    c.model.kv_blocks = 16;
    c.model.n_slots = 4;
    c.model.vocab_size = 32;
    c.model.max_loras = 2;
    bytes_ = encode_file_start(make_header(c, false));
  }
  template <class M>
  std::uint64_t send(Sender from, Sender to, const M& m, std::uint64_t cause = 0) {
    RecordHead head;
    head.from = {from, 0};
    head.to = {to, 0};
    head.seq = seq_base(head.from) | ++count_;
    head.cause = cause;
    head.time = ++time_;
    writer_.sent(head, m);
    return head.seq;
  }
  void take(Sender to, std::uint64_t seq) {
    RecordHead head;
    head.kind = RecordKind::received;
    head.to = {to, 0};
    head.seq = seq;
    head.time = ++time_;
    writer_.received(head);
  }
  template <class M>
  std::uint64_t pass(Sender from, Sender to, const M& m) {
    const std::uint64_t seq = send(from, to, m);
    take(to, seq);
    return seq;
  }
  void admit(std::uint64_t client) {
    Request r;
    r.client = client;
    r.prompt = {1, 2, 3};
    pass(Sender::dispatcher, Sender::scheduler, Admit{{}, {client, client}, Shared<Request>::of(r), 1});
  }
  void finish(std::uint64_t client, FinishReason reason, ErrorCode code = ErrorCode::none) {
    TokenBatch b;
    b.finishes.resize(1);
    b.finishes[0].request = {client, client};
    b.finishes[0].reason = reason;
    b.finishes[0].error.code = code;
    send(Sender::scheduler, Sender::delivery, Deliver{{}, Shared<TokenBatch>::of(b)});
  }
  // "R8", or "" if the rules hold.
  std::string rule() {
    writer_.flush();
    auto r = parse_recording(bytes_.data(), bytes_.size());
    EXPECT_TRUE(r) << r.error().what;
    auto c = check(r.value());
    EXPECT_TRUE(c) << c.error().what;
    if (c.value().finding) last_ = c.value().finding->event + 1 == r.value().events.size();
    return c.value().finding ? c.value().finding->rule : "";
  }
  bool at_the_last() const { return last_; }

 private:
  std::vector<std::uint8_t> bytes_;
  Writer writer_;
  std::uint64_t count_ = 0;
  TimeNs time_ = 0;
  bool last_ = false;
};

DeviceFacts whole() {
  DeviceFacts f;
  f.total_blocks = f.free_blocks = 16;
  f.total_slots = f.free_slots = 4;
  f.ring_slots = f.free_ring_slots = 3;
  return f;
}

TEST(Check, BlocksThatDoNotAddUp) {
  Made m;
  DeviceFacts f = whole();
  m.pass(Sender::router, Sender::scheduler, Accepted{{}, {1, 1}, {}, f});
  EXPECT_EQ(m.rule(), "");
  f.used_blocks = 1;
  m.send(Sender::router, Sender::scheduler, Accepted{{}, {1, 2}, {}, f});
  EXPECT_EQ(m.rule(), "R8");
  EXPECT_TRUE(m.at_the_last());
}

TEST(Check, ATeardownThatLeavesABlockOut) {
  Made m;
  DeviceFacts f = whole();
  f.free_blocks = 15;
  f.used_blocks = 1;
  m.send(Sender::router, Sender::runtime, TornDown{{}, f});
  EXPECT_EQ(m.rule(), "R8");
}

TEST(Check, LaunchesThatAreRefusedInALoop) {
  Made m;
  const DeviceError no{DeviceError::Phase::launch, ErrorCode::kv_exhausted, 0, 1, ""};
  for (std::uint64_t i = 1; i <= 16 + 2 * SchedulerConfig{}.max_batch; ++i)
    m.pass(Sender::router, Sender::scheduler, Accepted{{}, {1, i}, no, whole()});
  EXPECT_EQ(m.rule(), "");
  m.send(Sender::router, Sender::scheduler, Accepted{{}, {1, 999}, no, whole()});
  EXPECT_EQ(m.rule(), "R10");
  EXPECT_TRUE(m.at_the_last());
}

TEST(Check, AMailboxThatGrows) {
  Made m;
  for (int i = 0; i < 64; ++i) m.send(Sender::device, Sender::router, RingReady{});
  EXPECT_EQ(m.rule(), "");
  m.send(Sender::device, Sender::router, RingReady{});
  EXPECT_EQ(m.rule(), "R11");
}

TEST(Check, ARequestThatFailsWithoutAFault) {
  Made m;
  m.admit(1);
  m.finish(1, FinishReason::error, ErrorCode::poisoned);
  EXPECT_EQ(m.rule(), "R7");
}

TEST(Check, ARequestMayFailWithItsDevice) {
  Made m;
  m.admit(1);
  StepResult lost;
  lost.error.code = ErrorCode::device_lost;
  m.pass(Sender::router, Sender::scheduler, Settled{{}, Shared<StepResult>::of(lost), whole()});
  m.finish(1, FinishReason::error, ErrorCode::device_failed);
  EXPECT_EQ(m.rule(), "");
}

TEST(Check, ARequestWithoutAnEnd) {
  Made m;
  m.admit(1);
  m.admit(2);
  m.finish(2, FinishReason::cancelled);
  EXPECT_EQ(m.rule(), "") << "it may still come";
  m.send(Sender::router, Sender::runtime, TornDown{{}, whole()});
  EXPECT_EQ(m.rule(), "R5");
}

TEST(Check, ARequestWithTwoEnds) {
  Made m;
  m.admit(1);
  m.finish(1, FinishReason::cancelled);
  m.finish(1, FinishReason::cancelled);
  EXPECT_EQ(m.rule(), "R5");
  EXPECT_TRUE(m.at_the_last());
}

TEST(Check, ATokenThatComesFromNoRow) {
  Made m;
  m.admit(1);
  TokenBatch b;
  b.events.resize(1);
  b.events[0].request = {1, 1};
  m.send(Sender::scheduler, Sender::delivery, Deliver{{}, Shared<TokenBatch>::of(b)});
  EXPECT_EQ(m.rule(), "R2");
}

// A step of one row, at the beginning of a sequence that was just opened.
std::string rule_of_step(AdapterRef adapter, bool shown) {
  Made m;
  const SeqId seq{1, 5};
  m.admit(1);
  m.pass(Sender::router, Sender::scheduler, Opened{{}, {1, 1}, seq, 0, 0, {}, whole()});
  if (shown) m.pass(Sender::router, Sender::stream, ChangeTable{{}, adapter, {}});
  StepPlan plan;
  plan.ticket = {1, 1};
  plan.rows.resize(1);
  plan.rows[0].seq = seq;
  plan.rows[0].adapter = adapter;
  plan.tokens = {1};
  m.pass(Sender::scheduler, Sender::router, Launch{{}, Shared<StepPlan>::of(plan), true});
  LaunchedStep step;
  step.ticket = plan.ticket;
  step.rows.resize(1);
  step.rows[0].adapter_slot = adapter.slot;
  step.deltas = {{0, 0, 7}};
  m.send(Sender::router, Sender::stream, Enqueue{{}, Shared<LaunchedStep>::of(step)});
  return m.rule();
}

TEST(Check, AnAdapterThatIsNotInTheTable) {
  EXPECT_EQ(rule_of_step({}, false), "");
  EXPECT_EQ(rule_of_step({1, 3}, true), "");
  EXPECT_EQ(rule_of_step({1, 3}, false), "R9");
  EXPECT_EQ(rule_of_step({999, 1}, false), "R9") << "beyond the end of the table";
}

TEST(Check, AHeaderWithSizesOfNoRuntime) {
  CoreConfigs c;
  EXPECT_FALSE(plausible(c)) << "no blocks, no slots";
  c.device.ring_slots = 3;
  c.model.context_length = 64;
  c.model.n_slots = 4;
  EXPECT_TRUE(plausible(c));
  c.model.context_length = 0xFFFFFFFF;
  EXPECT_FALSE(plausible(c));
}

}  // namespace
}  // namespace troupe::actors::trace
