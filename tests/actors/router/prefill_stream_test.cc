// Steps on two streams: each has its slots of the ring (R4), a sequence is on one at a time (R12), and what a step names is
// fenced until that step has settled, whatever settles on the other stream (R3).
#include "tests/actors/router/rig.h"

namespace troupe::actors {
namespace {

ModelInfo windowed() {
  ModelInfo m = small_model();
  m.window = 5;
  return m;
}

class RouterTwoStreams : public RouterTest {
 protected:
  explicit RouterTwoStreams(const ModelInfo& model = small_model()) : RouterTest(model) {
    RingReady ring;
    for (std::uint32_t i = 0; i < 6; ++i) {
      SlotHandles slot;
      slot.slot = i;
      slot.stream = i < 3 ? kComputeStream : kPrefillStream;
      ring.slots.push_back(slot);
    }
    send(ring);
  }
  ErrorCode launch_on(std::uint32_t stream, std::uint64_t step, std::vector<Row> rows, std::vector<Effect> effects = {}) {
    StepPlan plan;
    plan.ticket = {1, step};
    plan.stream = stream;
    plan.rows = std::move(rows);
    plan.effects = std::move(effects);
    plan.tokens.assign(16, 7);
    send(Launch{{}, Shared<StepPlan>::of(plan), true});
    return accepted->error.code;
  }
};

TEST_F(RouterTwoStreams, EachHasItsSlotsAndItsDepth) {
  const SeqId a = open(1), b = open(2);
  ASSERT_EQ(launch_on(kComputeStream, 1, {host_row(a, 0)}), ErrorCode::none);
  ASSERT_EQ(launch_on(kComputeStream, 2, {fed_row(a, 1, 1, 0)}), ErrorCode::none);
  EXPECT_EQ(launch_on(kComputeStream, 3, {fed_row(a, 2, 2, 0)}), ErrorCode::ring_exhausted);
  EXPECT_EQ(launch_on(kPrefillStream, 4, {host_row(b, 0, 4)}), ErrorCode::none) << "the other stream's depth is its own";
  EXPECT_EQ(enqueued.back()->slot.stream, kPrefillStream);
  EXPECT_GE(enqueued.back()->slot.slot, 3u);
  EXPECT_EQ(core.facts().in_flight, 3u);
}

TEST_F(RouterTwoStreams, ASequenceIsOnOneAtATime) {
  const SeqId a = open(1);
  ASSERT_EQ(launch_on(kPrefillStream, 1, {host_row(a, 0, 4)}), ErrorCode::none);
  EXPECT_EQ(launch_on(kComputeStream, 2, {fed_row(a, 4, 1, 0)}), ErrorCode::bad_plan);
  EXPECT_NE(accepted->error.what.find("another stream"), std::string::npos) << accepted->error.what;
  complete(1);
  EXPECT_EQ(launch_on(kComputeStream, 3, {host_row(a, 4)}), ErrorCode::none);
}

TEST_F(RouterTwoStreams, AStreamThatIsNotThereIsRefused) { EXPECT_EQ(launch_on(2, 1, {host_row(open(1), 0)}), ErrorCode::bad_plan); }

TEST_F(RouterTwoStreams, BlocksWaitForTheStepThatNamesThem) {
  const SeqId a = open(1), b = open(2);
  ASSERT_EQ(launch_on(kPrefillStream, 1, {host_row(a, 0, 8)}), ErrorCode::none);
  ASSERT_EQ(launch_on(kComputeStream, 2, {host_row(b, 0)}, {ReleaseSeq{a}}), ErrorCode::none);
  EXPECT_EQ(core.facts().fenced_blocks, 2u);
  complete(2);
  EXPECT_EQ(core.facts().fenced_blocks, 2u) << "a later step settled, on the other stream";
  complete(1);
  EXPECT_EQ(core.facts().fenced_blocks, 0u);
}

class RouterTwoStreamsWindow : public RouterTwoStreams {
 protected:
  RouterTwoStreamsWindow() : RouterTwoStreams(windowed()) {}
};

TEST_F(RouterTwoStreamsWindow, SoDoBlocksFromBehindAWindow) {
  const SeqId a = open(1), b = open(2);
  ASSERT_EQ(launch_on(kPrefillStream, 1, {host_row(a, 0, 8)}), ErrorCode::none);
  ASSERT_EQ(launch_on(kPrefillStream, 2, {host_row(a, 8, 4)}), ErrorCode::none);
  complete(1);
  ASSERT_EQ(launch_on(kComputeStream, 3, {host_row(b, 0)}, {Commit{a, 0, 8}}), ErrorCode::none);
  EXPECT_EQ(core.facts().fenced_blocks, 1u);
  complete(3);
  EXPECT_EQ(core.facts().fenced_blocks, 1u) << "step 2 reads it still";
  complete(2);
  EXPECT_EQ(core.facts().fenced_blocks, 0u);
}

}  // namespace
}  // namespace troupe::actors
