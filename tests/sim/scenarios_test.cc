// Public failures of engines like this one, as scenarios: each test bears the name of its scenario, and shows that what
// went wrong there happens here and goes right. Every world checks R1 to R8, R10 and R11 after every message.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/sim/life.h"

namespace troupe::sim {
namespace {

// A request ends at t while t+1 still names its blocks: they are fenced, and nobody has them before t+1 has settled.
TEST(Scenario, FinishFreesEarly) {
  std::uint32_t fenced = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    WorldOptions o = options(seed, 3);
    o.device.kv_blocks = 14;
    Life life(o);
    for (std::uint64_t c = 1; c <= 10; ++c) life.post(stopping(c, 4 + c % 5, 30));
    std::size_t ended = 0;
    while (life.world.violation().empty() && life.world.step()) {
      if (life.world.finishes().size() == ended) continue;
      ended = life.world.finishes().size();
      fenced += life.world.router().facts().fenced_blocks > 0 ? 1 : 0;
    }
    life.finish();
  }
  EXPECT_GT(fenced, 20u) << "requests must end with their blocks named by a step in flight";
}

// A model with a window far below its context, in a pool that holds no whole stream: blocks behind the window go back while
// steps run ahead and rows are done again. By settled length that changes no token. By launched length a redo reads what went
// back, and both the device and the Witness see it.
WorldOptions windowed(std::uint64_t seed, std::uint32_t depth) {
  WorldOptions o = options(seed, depth);
  o.device.context = 160;
  o.device.window = 6 + seed % 7;
  o.device.kv_blocks = 30;  // 120 positions, for three streams of up to 150
  for (std::uint64_t step = 12; step < 120; step += 9) o.device.nan_rows.insert({step, seed % 3});
  return o;
}

void post_windowed(Life& life) {
  for (std::uint64_t c = 1; c <= 3; ++c) life.post(greedy_request(c, 20 + 10 * static_cast<std::uint32_t>(c), 100));
}

TEST(Scenario, OptimisticLength) {
  std::uint64_t behind = 0, fenced = 0, redone = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Life life(windowed(seed, 2 + seed % 3));
    post_windowed(life);
    life.finish();
    ASSERT_EQ(life.world.finishes().size(), 3u);
    for (const Finish& f : life.world.finishes()) EXPECT_EQ(f.reason, FinishReason::length);
    behind += life.world.router().stats().behind_window;
    fenced += life.world.router().stats().behind_window_fenced;
    redone += life.world.scheduler().stats().redone_rows;
    EXPECT_EQ(life.world.device().faults().missing, 0u);
  }
  EXPECT_GT(behind, 60u * 50) << "each stream must outgrow its window many times";
  EXPECT_GT(fenced, 60u * 20) << "and with steps in flight that name what goes back";
  EXPECT_GT(redone, 60u * 5) << "and rows must be done again, from the settled length";
}

TEST(Scenario, OptimisticLengthIsSeenByWitnessAndDevice) {
  std::uint32_t witness = 0, device = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions o = windowed(seed, 3);
    o.router_fault = actors::RouterFault::optimistic_length;
    o.own_checks = false;  // the router's check of its own books sees it at once
    Life life(o);
    post_windowed(life);
    life.world.run(100'000);
    witness += life.world.violation().find("which went back") != std::string::npos ? 1 : 0;
    for (int k = 0; k < 1000 && life.world.device().faults().missing == 0 && life.world.step(); ++k) {
    }
    device += life.world.device().faults().missing > 0 ? 1 : 0;
  }
  EXPECT_GE(witness, 15u);
  EXPECT_GE(device, 15u);
}

// What goes back from behind a window waits at a fence, as what a finished request leaves does.
TEST(Scenario, AWindowsBlocksAreFenced) {
  std::uint32_t seen = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions o = windowed(seed, 4);
    o.device.nan_rows.clear();
    o.device_lag = 8;
    o.router_fault = actors::RouterFault::free_at_finish;
    o.own_checks = false;
    Life life(o);
    post_windowed(life);
    while (life.world.violation().empty() && life.world.finishes().empty() && life.world.scheduler().stats().preemptions == 0 &&
           life.world.step()) {
    }
    seen += life.world.violation().find("in flight names for") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(seen, 10u);
}

// Preempted with tickets in flight, and resumed: the stream is the undisturbed one, no token twice.
TEST(Scenario, PreemptInFlight) {
  std::uint64_t in_flight = 0, resumes = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    WorldOptions o = options(seed, 4);
    o.device.kv_blocks = 12;
    Life life(o);
    for (std::uint64_t c = 1; c <= 6; ++c) life.post(greedy_request(c, 6, 26));
    std::uint64_t before = 0;
    while (life.world.violation().empty() && life.world.step()) {
      const std::uint64_t now = life.world.scheduler().stats().preemptions;
      if (now > before && life.world.scheduler().in_flight() > 0) ++in_flight;
      before = now;
    }
    life.finish();
    resumes += life.world.scheduler().stats().resumes;
  }
  EXPECT_GT(in_flight, 5u);
  EXPECT_GT(resumes, 20u);
}

// What goes wrong with one request ends that request, with a reason; the others have their streams.
TEST(Scenario, OneRowAssert) {
  std::uint32_t failed = 0, fine = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    WorldOptions o = options(seed, 2);
    for (std::uint64_t step = 4; step < 8; ++step) o.device.nan_rows.insert({step, 1});
    Life life(o);
    for (std::uint64_t c = 1; c <= 4; ++c) life.post(greedy_request(c, 3, 12));
    life.finish();
    for (const Finish& f : life.world.finishes()) {
      if (f.reason != FinishReason::error) {
        ++fine;
        continue;
      }
      ++failed;
      EXPECT_EQ(f.error.code, ErrorCode::no_token);
      EXPECT_FALSE(f.error.what.empty());
    }
  }
  EXPECT_GT(failed, 10u);
  EXPECT_GT(fine, 100u);
}

// "Not known yet" is a type, never a number: a fed row has no token, and no number outside the vocabulary gets through.
TEST(Scenario, MinusOne) {
  actors::RouterCore router({}, sim_model({}));
  actors::RouterOutbox out;
  router.on(RingReady{{}, std::vector<SlotHandles>(3)}, 0, out);
  router.on(Open{{}, {1, 1}, 1, {}, {}, {}}, 0, out);
  const SeqId seq = std::get<Opened>(out.items()[0]).seq;
  out.clear();
  StepPlan plan;
  plan.ticket = {1, 1};
  plan.rows.resize(1);
  plan.rows[0].seq = seq;
  plan.rows[0].source = FeedSource::host(0);
  plan.tokens = {0xFFFFFFFFu};
  router.on(Launch{{}, Shared<StepPlan>::of(plan), true}, 0, out);
  EXPECT_EQ(std::get<Accepted>(out.items()[0]).error.code, ErrorCode::bad_plan);
  out.clear();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {  // a world breaks when a core answers bad_plan
    Life life(options(seed, 5));
    for (std::uint64_t c = 1; c <= 5; ++c) life.post(stopping(c, 4, 20));
    life.finish();
    EXPECT_GT(life.world.scheduler().stats().fed_rows, 0u);
  }
}

// Feed cells are used again every depth + 1 steps, for long streams at every depth; a row that names a step whose cells
// are gone is refused.
TEST(Scenario, CellWraps) {
  for (std::uint32_t depth = 2; depth <= 8; ++depth) {
    Life life(options(depth, depth));
    for (std::uint64_t c = 1; c <= 4; ++c) life.post(greedy_request(c, 3, 80));
    life.finish();
    EXPECT_GT(life.world.scheduler().stats().fed_rows, 10 * (depth + 1)) << "the cells must wrap";
  }
  actors::RouterCore router({}, sim_model({}));
  actors::RouterOutbox out;
  RingReady ring;
  for (std::uint32_t i = 0; i < 3; ++i) ring.slots.push_back({i, 0, 0, 0, 0, 0});
  router.on(ring, 0, out);
  router.on(Open{{}, {1, 1}, 1, {}, {}, {}}, 0, out);
  const SeqId seq = std::get<Opened>(out.items()[0]).seq;
  ErrorCode code = ErrorCode::none;
  for (std::uint64_t step = 1; step <= 5; ++step) {
    out.clear();
    StepPlan plan;
    plan.ticket = {1, step};
    plan.rows.resize(1);
    plan.rows[0].seq = seq;
    plan.rows[0].position = static_cast<std::uint32_t>(step - 1);
    plan.rows[0].source = step == 5 ? FeedSource::feed({1, 1}, 0) : FeedSource::host(0);
    plan.tokens = {5};
    router.on(Launch{{}, Shared<StepPlan>::of(plan), true}, 0, out);
    code = std::get<Accepted>(out.items().back()).error.code;
    if (step == 5) break;
    ASSERT_EQ(code, ErrorCode::none);
    const auto enqueued = std::get<Enqueue>(out.items()[0]).step;
    StepResult r;
    r.ticket = plan.ticket;
    r.rows.resize(1);
    router.on(Completed{{}, enqueued->slot.slot, Shared<StepResult>::of(r)}, 0, out);
  }
  EXPECT_EQ(code, ErrorCode::bad_plan) << "step 1's cells have been used again";
}

// A slot, and the table in it, is handed on only when no step in flight reads it.
TEST(Scenario, RowFreedUnderStep) {
  std::uint64_t fenced = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    WorldOptions o = options(seed, 4);
    o.device.n_slots = 2;
    o.device_lag = 8;
    Life life(o);
    for (std::uint64_t c = 1; c <= 8; ++c) life.post(stopping(c, 3, 20));
    life.finish();
    fenced += life.world.router().stats().releases_fenced;
  }
  EXPECT_GT(fenced, 50u);
}

// Cancel and completion meet at every moment: one release, and a second one is refused and changes nothing.
TEST(Scenario, DoubleFree) {
  for (std::uint32_t moment = 0; moment < 150; ++moment) {
    Life life(options(moment + 1, 2));
    life.post(stopping(1, 5, 8));
    life.post(greedy_request(2, 5, 8));
    life.steps(moment);
    life.world.cancel(1);
    life.finish();
    const actors::RouterStats s = life.world.router().stats();
    EXPECT_LE(s.releases_now + s.releases_fenced, 2u);
  }
  actors::RouterCore router({}, sim_model({}));
  actors::RouterOutbox out;
  router.on(Open{{}, {1, 1}, 1, {}, {}, {}}, 0, out);
  const SeqId seq = std::get<Opened>(out.items()[0]).seq;
  router.on(Apply{{}, ReleaseSeq{seq}}, 0, out);
  const DeviceFacts before = router.facts();
  router.on(Apply{{}, ReleaseSeq{seq}}, 0, out);
  EXPECT_EQ(std::get<Applied>(out.items().back()).error.code, ErrorCode::bad_plan);
  EXPECT_EQ(router.facts(), before);
  EXPECT_EQ(router.check(), "");
}

// Rows that need the host (sampling, penalties, logprobs) wait for it; the others run ahead beside them.
TEST(Scenario, HostRowAhead) {
  std::vector<Request> all;
  for (std::uint64_t c = 1; c <= 6; ++c) {
    Request q = greedy_request(c, 5, 16);
    if (c % 2 == 0) {
      q.sampling.temperature = 0.9f;
      q.sampling.seed = c;
      q.sampling.repetition_penalty = 1.3f;
      q.sampling.frequency_penalty = 0.5f;
      q.sampling.logprobs = 2;
    }
    all.push_back(std::move(q));
  }
  WorldOptions o = options(1, 1);
  o.in_order = true;
  World sync(o);
  for (const Request& q : all) sync.post(q, nullptr);
  sync.run();
  std::uint64_t ahead = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    World world(options(seed, 4));
    for (const Request& q : all) world.post(q, &sync.stream(q.client));
    world.run();
    world.finish();
    ASSERT_EQ(world.violation(), "");
    for (const Request& q : all)
      for (std::size_t i = 0; q.sampling.logprobs && i < 16; ++i)
        EXPECT_EQ(world.stream(q.client).logprobs.at(i), sync.stream(q.client).logprobs.at(i));
    ahead += world.scheduler().stats().steps_ahead;
  }
  EXPECT_GT(ahead, 100u);
}

// A lost device is lost: everything open ends with it, once, and everything later is refused with it.
TEST(Scenario, StickyError) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    WorldOptions o = options(seed, 3);
    o.device.lose_at = 5;
    Life life(o);
    for (std::uint64_t c = 1; c <= 5; ++c) life.post(greedy_request(c, 5, 30));
    life.world.run();
    for (std::uint64_t c = 6; c <= 8; ++c) life.post(greedy_request(c, 5, 3));
    life.finish();
    ASSERT_EQ(life.world.finishes().size(), 8u);
    for (const Finish& f : life.world.finishes()) EXPECT_EQ(f.error.code, ErrorCode::device_lost);
    EXPECT_TRUE(life.world.device_core().lost());
  }
}

// Health is progress: while a step hangs the last settled step grows old, and after the time-out everything is told.
TEST(Scenario, WedgedHealthy) {
  WorldOptions o = options(1, 2);
  o.device.hang_at = 6;
  Life life(o);
  for (std::uint64_t c = 1; c <= 3; ++c) life.post(greedy_request(c, 5, 30));
  while (!life.world.device().hung()) ASSERT_TRUE(life.world.step());
  const TimeNs before = life.world.scheduler().last_settled();
  EXPECT_GT(before, 0);
  EXPECT_GT(life.world.scheduler().running(), 0u) << "work waits, and nothing pretends that it ended";
  life.finish();
  EXPECT_GT(life.world.now() - before, TimeNs{1'000'000'000}) << "the silence shows in the age of the last settled step";
  ASSERT_EQ(life.world.finishes().size(), 3u);
  for (const Finish& f : life.world.finishes()) EXPECT_EQ(f.error.code, ErrorCode::device_lost);
}

}  // namespace
}  // namespace troupe::sim
