// What must show as other tokens, as an error of a row, or as an error of a step.
#include <gtest/gtest.h>

#include <cmath>
#include <semaphore>

#include "tests/device/models/scripted_rig.h"

namespace troupe::device {
namespace {

template <class T>
ErrorCode code_of(const Result<T>& result) {
  return result.has_error() ? result.error().code : ErrorCode::none;
}

const std::vector<Token> kPrompt = {3, 1, 4, 1, 5, 9, 2, 6};

// The prompt in slot 0, blocks of four: 0 and 1.
RigStep prompt_step(std::uint64_t n) {
  RigStep step;
  step.ticket = {1, n};
  step.deltas = {{0, 0, 0}, {0, 1, 1}, {0, 2, 2}};
  step.host(0, 0, kPrompt);
  return step;
}

class ScriptedFaults : public ::testing::Test {
 protected:
  void start(std::vector<ScriptedFault> faults) { rig = std::make_unique<Rig>(options(std::move(faults))); }
  static ScriptedOptions options(std::vector<ScriptedFault> faults) {
    return {.vocab = 50000,
            .context = 64,
            .block_size = 4,
            .kv_blocks = 16,
            .n_slots = 4,
            .max_rows = 4,
            .max_step_tokens = 32,
            .max_logits_rows = 2,
            .max_depth = 2,
            .faults = std::move(faults)};
  }
  void TearDown() override {
    if (rig) rig->close();
  }
  Token oracle(std::vector<Token> history) const { return scripted_next(rig->model->options(), history); }
  std::unique_ptr<Rig> rig;
};

// The negative controls of every test that compares with the oracle: each of these defects gives another token.
TEST_F(ScriptedFaults, ABlockReusedTooEarlyShows) {
  for (const std::uint32_t stolen : {0u, 1u}) {
    start({});
    ASSERT_FALSE(rig->run(prompt_step(1)).has_error());
    const Token next = rig->slots[0].rows[0].id;
    ASSERT_EQ(next, oracle(kPrompt));
    RigStep thief;
    thief.ticket = {1, 2};
    thief.deltas = {{1, 0, stolen}};
    thief.host(1, 0, {7});
    ASSERT_FALSE(rig->run(thief).has_error());
    RigStep step;
    step.ticket = {1, 3};
    step.host(0, 8, {next});
    ASSERT_FALSE(rig->run(step).has_error());
    std::vector<Token> history = kPrompt;
    history.push_back(next);
    EXPECT_NE(rig->slots[0].rows[0].id, oracle(history)) << "block " << stolen;
    rig->close();
    rig.reset();
  }
}

TEST_F(ScriptedFaults, AWrongTableAndASkippedPositionShow) {
  start({});
  ASSERT_FALSE(rig->run(prompt_step(1)).has_error());
  std::vector<Token> history = kPrompt;
  history.push_back(8);
  RigStep step;
  step.ticket = {1, 2};
  step.deltas = {{0, 1, 5}};
  step.host(0, 8, {8});
  ASSERT_FALSE(rig->run(step).has_error());
  EXPECT_NE(rig->slots[0].rows[0].id, oracle(history));
  step.ticket = {1, 3};
  step.deltas = {{0, 1, 1}};
  step.rows[0].position = 9;
  ASSERT_FALSE(rig->run(step).has_error());
  EXPECT_NE(rig->slots[0].rows[0].id, oracle(history));
  step.ticket = {1, 4};
  step.rows[0].position = 8;
  ASSERT_FALSE(rig->run(step).has_error());
  EXPECT_EQ(rig->slots[0].rows[0].id, oracle(history)) << "mended";
}

TEST_F(ScriptedFaults, ABlockThatIsMissingFailsTheStep) {
  start({});
  RigStep step;
  step.ticket = {1, 1};
  step.deltas = {{0, 0, 0}};
  step.host(0, 0, kPrompt);
  EXPECT_EQ(code_of(rig->run(step)), ErrorCode::bad_plan);
}

TEST_F(ScriptedFaults, ABlockBehindTheWindowMayBeMissingAndOneInItMayNot) {
  ScriptedOptions o = options({});
  o.window = 5;
  rig = std::make_unique<Rig>(o);
  ASSERT_FALSE(rig->run(prompt_step(1)).has_error());
  std::vector<Token> history = kPrompt;
  history.push_back(7);
  RigStep step;
  step.ticket = {1, 2};
  step.deltas = {{0, 0, kNoBlock}};
  step.host(0, 8, {7});
  ASSERT_FALSE(rig->run(step).has_error());
  EXPECT_EQ(rig->slots[0].rows[0].id, oracle(history)) << "position 8 reads 4 to 8";
  step.ticket = {1, 3};
  step.deltas = {{0, 1, kNoBlock}};
  EXPECT_EQ(code_of(rig->run(step)), ErrorCode::bad_plan);
}

TEST_F(ScriptedFaults, AStaleCellFailsTheRowAndItsDescendantsOnly) {
  start({});
  RigStep first = prompt_step(1);
  first.deltas.push_back({1, 0, 8});
  first.host(1, 0, {11, 12});
  ASSERT_FALSE(rig->enqueue(first, 0).has_error());
  RigStep second;
  second.ticket = {1, 2};
  second.fed(0, 8, 0, {1, 77}, 0);  // another ticket's tag
  second.fed(1, 2, 0, {1, 1}, 1);
  ASSERT_FALSE(rig->enqueue(second, 1).has_error());
  RigStep third;
  third.ticket = {1, 3};
  third.fed(0, 9, 1, {1, 2}, 0);
  third.fed(1, 3, 1, {1, 2}, 1);
  ASSERT_FALSE(rig->enqueue(third, 2).has_error());
  ASSERT_FALSE(rig->wait(2).has_error());
  EXPECT_EQ(rig->slots[1].rows[0].status, CellStatus::stale_feed);
  EXPECT_EQ(rig->slots[1].rows[0].input, 0u);
  EXPECT_EQ(rig->slots[2].rows[0].status, CellStatus::poisoned);
  EXPECT_EQ(rig->slots[2].rows[0].input, 0u);
  std::vector<Token> history = {11, 12};
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    const Readback& back = rig->slots[slot].rows[1];
    EXPECT_EQ(back.status, CellStatus::ok);
    EXPECT_EQ(back.id, oracle(history));
    history.push_back(back.id);
  }
  // The row enters again with its host token, and stream order makes that write of the KV the last.
  history = kPrompt;
  history.push_back(rig->slots[0].rows[0].id);
  RigStep redo;
  redo.ticket = {1, 4};
  redo.host(0, 8, {history.back()});
  ASSERT_FALSE(rig->run(redo).has_error());
  EXPECT_EQ(rig->slots[0].rows[0].id, oracle(history));
}

TEST_F(ScriptedFaults, AFailedStepWritesNothingAndCanBeRunAgain) {
  start({{.kind = ScriptedFault::Kind::fail_step, .step = 2, .code = ErrorCode::io_failed}});
  ASSERT_FALSE(rig->run(prompt_step(1), 0).has_error());
  std::vector<Token> history = kPrompt;
  history.push_back(rig->slots[0].rows[0].id);
  RigStep second, third;
  second.ticket = {1, 2};
  second.fed(0, 8, 0, {1, 1}, 0);
  third.ticket = {1, 3};
  third.fed(0, 9, 1, {1, 2}, 0);
  ASSERT_FALSE(rig->enqueue(second, 1).has_error());
  ASSERT_FALSE(rig->enqueue(third, 2).has_error());
  EXPECT_EQ(code_of(rig->wait(1)), ErrorCode::io_failed);
  ASSERT_FALSE(rig->wait(2).has_error()) << "the error is that step's alone";
  EXPECT_EQ(rig->slots[2].rows[0].status, CellStatus::stale_feed);
  RigStep again;
  again.ticket = {1, 4};
  again.host(0, 8, {history.back()});
  ASSERT_FALSE(rig->run(again, 0).has_error());
  EXPECT_EQ(rig->slots[0].rows[0].id, oracle(history));
}

TEST_F(ScriptedFaults, ARowOfNaNHasNoToken) {
  start({{.kind = ScriptedFault::Kind::nan_row, .step = 1, .row = 1}});
  RigStep first = prompt_step(1);
  first.deltas.push_back({1, 0, 8});
  first.host(1, 0, {11, 12}).logits_row = 0;
  ASSERT_FALSE(rig->enqueue(first, 0).has_error());
  RigStep second;
  second.ticket = {1, 2};
  second.fed(0, 8, 0, {1, 1}, 0);
  second.fed(1, 2, 0, {1, 1}, 1);
  ASSERT_FALSE(rig->enqueue(second, 1).has_error());
  ASSERT_FALSE(rig->wait(1).has_error());
  EXPECT_EQ(rig->slots[0].rows[0].status, CellStatus::ok);
  EXPECT_EQ(rig->slots[0].rows[1].status, CellStatus::no_token);
  for (std::size_t i = 0; i < 50000; ++i) ASSERT_TRUE(std::isnan(rig->slots[0].logits[i]));
  EXPECT_EQ(rig->slots[1].rows[0].status, CellStatus::ok);
  EXPECT_EQ(rig->slots[1].rows[1].status, CellStatus::poisoned);
}

TEST_F(ScriptedFaults, AStepThatHangsCompletesWhenReleased) {
  start({{.kind = ScriptedFault::Kind::hang_step, .step = 1}});
  RigStep step = prompt_step(1);
  struct Told {
    std::binary_semaphore done{0};
  } told;
  ASSERT_FALSE(rig->enqueue(step, 0).has_error());
  const Notify notify{[](void* context, Event, ErrorCode) { static_cast<Told*>(context)->done.release(); }, &told};
  ASSERT_FALSE(rig->driver->notify_event(rig->slots[0].event, rig->stream, notify).has_error());
  EXPECT_FALSE(told.done.try_acquire_for(std::chrono::milliseconds(20)));
  rig->model->release();
  told.done.acquire();
  EXPECT_EQ(rig->slots[0].rows[0].id, oracle(kPrompt));
}

TEST_F(ScriptedFaults, TheDestructorReleasesAndWaits) {
  start({{.kind = ScriptedFault::Kind::hang_step, .step = 1}});
  RigStep first = prompt_step(1), second = prompt_step(2);
  ASSERT_FALSE(rig->enqueue(first, 0).has_error());
  ASSERT_FALSE(rig->enqueue(second, 1).has_error());
  rig->close();
  const DriverUsage usage = rig->driver->usage();
  EXPECT_EQ(usage.streams + usage.events + usage.pinned_bytes + usage.device_bytes, 0u);
  rig.reset();
}

TEST_F(ScriptedFaults, GoesWithALostDevice) {
  start({{.kind = ScriptedFault::Kind::hang_step, .step = 1}});
  RigStep first = prompt_step(1), second = prompt_step(2);
  ASSERT_FALSE(rig->enqueue(first, 0).has_error());
  ASSERT_FALSE(rig->enqueue(second, 1).has_error());
  rig->driver->inject({.call = DriverCall::event_query, .nth = 1, .code = ErrorCode::device_lost, .sticky = true});
  EXPECT_EQ(code_of(rig->driver->event_query(rig->slots[0].event)), ErrorCode::device_lost);
  rig->model.reset();
  rig->driver.reset();
  rig.reset();
}

TEST_F(ScriptedFaults, ADriverThatRefusesToEnqueueIsReportedAndLeavesRoom) {
  start({});
  for (std::uint64_t n = 1; n <= 12; ++n) {
    // In turn: decode, argmax, the copy and the record fail; each leaves the next step its place.
    const DriverCall call[] = {DriverCall::enqueue, DriverCall::enqueue, DriverCall::copy_d2h, DriverCall::record_event};
    rig->driver->inject({.call = call[n % 4], .nth = n % 4 == 1 ? 2u : 1u});
    RigStep step = prompt_step(n);
    EXPECT_EQ(code_of(rig->enqueue(step, 0)), ErrorCode::device_failed);
    ASSERT_FALSE(rig->driver->record_event(rig->slots[1].event, rig->stream).has_error());
    ASSERT_FALSE(rig->wait(1).has_error());
  }
  ASSERT_FALSE(rig->run(prompt_step(13)).has_error());
  EXPECT_EQ(rig->slots[0].rows[0].id, oracle(kPrompt));
}

TEST_F(ScriptedFaults, MoreStepsThanTheRingHoldsAreRefused) {
  start({{.kind = ScriptedFault::Kind::hang_step, .step = 1}});
  std::vector<RigStep> steps;
  for (std::uint64_t n = 1; n <= 4; ++n) steps.push_back(prompt_step(n));
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_FALSE(rig->enqueue(steps[i], i).has_error());
  EXPECT_EQ(code_of(rig->enqueue(steps[3], 0)), ErrorCode::overloaded);
  rig->model->release();
  ASSERT_FALSE(rig->wait(2).has_error());
  EXPECT_FALSE(rig->run(steps[3], 0).has_error());
}

TEST_F(ScriptedFaults, PlansOutOfRangeAreRefused) {
  start({});
  const auto code = [&](auto change) {
    RigStep step = prompt_step(1);
    change(step);
    return code_of(rig->model->decode_batch_fed(rig->view(step, 0), rig->stream));
  };
  EXPECT_EQ(code([](RigStep& s) { s.rows[0].slot = 4; }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.rows[0].n_tokens = 0; }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.rows[0].position = 57; }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.rows[0].position = 0xFFFFFFFF; }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.rows[0].n_tokens = 9; }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.rows[0].index = 1; }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.tokens[7] = 50000; }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.rows[0].logits_row = 2; }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.deltas[0].slot = 4; }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.deltas[0].index = 16; }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.deltas[0].block = 16; }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.fed(0, 8, 3, {1, 1}, 0); }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.fed(0, 8, 0, {1, 1}, 4); }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.fed(0, 8, 0, {1, 1}, 0).n_tokens = 2; }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) { s.rows.assign(5, s.rows[0]); }), ErrorCode::bad_plan);
  EXPECT_EQ(code([](RigStep& s) {
              for (int i = 0; i < 3; ++i) s.host(1, 0, std::vector<Token>(9, 1));
            }),
            ErrorCode::bad_plan);
  RigStep step = prompt_step(1);
  EXPECT_EQ(code_of(rig->model->argmax_batch_to_feed(1, rig->view(step, 0), {}, rig->slots[0].event, rig->stream)), ErrorCode::bad_plan);
}

TEST_F(ScriptedFaults, LoadReportsWhatTheDriverSays) {
  const auto driver = make_host_driver();
  for (std::uint64_t nth = 1; nth <= 5; ++nth) {
    driver->inject({.call = DriverCall::alloc_device, .nth = nth});
    EXPECT_EQ(code_of(ScriptedModel::load(*driver, {})), ErrorCode::device_failed) << nth;
    EXPECT_EQ(driver->usage().device_bytes, 0u) << nth;
  }
  driver->inject({.call = DriverCall::create_event});
  EXPECT_EQ(code_of(ScriptedModel::load(*driver, {})), ErrorCode::device_failed);
  EXPECT_EQ(code_of(ScriptedModel::load(*driver, {.vocab = 2})), ErrorCode::bad_request);
  const DriverUsage usage = driver->usage();
  EXPECT_EQ(usage.device_bytes + usage.events, 0u);
}

}  // namespace
}  // namespace troupe::device
