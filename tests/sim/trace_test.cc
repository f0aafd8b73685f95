// Recordings of simulated lives: the rules hold over them, the cores run again on them and do the same, and a broken
// rule is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "actors/trace/check.h"
#include "actors/trace/diff.h"
#include "actors/trace/replay.h"
#include "tests/sim/recordings.h"
#include "tests/sim/scenario.h"

namespace troupe::sim {
namespace {

using actors::LoraFault;
using actors::RouterFault;
using actors::SchedulerFault;
using actors::SpillFault;
namespace trace = actors::trace;

enum class Life { plain, lora, hybrid };

Outcome recorded(std::uint64_t seed, const Faults& faults = {}, Life life = Life::plain, bool damage = false) {
  Scenario s = life == Life::hybrid ? make_hybrid_scenario(seed) : life == Life::lora ? make_lora_scenario(seed) : make_scenario(seed);
  s.world.own_checks = life != Life::hybrid;  // the router's own check would end the life before the step that shows it
  if (damage) s.world.files.damages = {1, 2, 3, 4};
  s.world.record = true;
  return run_scenario(s, faults);
}

trace::Recording parsed(const std::vector<std::uint8_t>& bytes) {
  auto r = trace::parse_recording(bytes.data(), bytes.size());
  EXPECT_TRUE(r) << r.error().what;
  return std::move(r.value());
}

TEST(Trace, TheRulesHoldOverARecordingAndTheCoresDoItAgain) {
  std::uint64_t messages = 0, tokens = 0, compared = 0, sampled = 0, saved = 0, snapshots = 0;
  const auto count = [&](const Effect& e) {
    snapshots += std::holds_alternative<SsmSnapshotSave>(e) || std::holds_alternative<SsmSnapshotRestore>(e) ? 1 : 0;
  };
  for (std::uint64_t n = 3; n < 4000; ++n) {
    const std::uint64_t seed = n / 3;
    const Outcome outcome = recorded(seed, {}, static_cast<Life>(n % 3));
    ASSERT_EQ(outcome.violation, "");
    const trace::Recording r = parsed(outcome.recording);
    ASSERT_EQ(r.damage, "");
    const auto checked = trace::check(r);
    ASSERT_TRUE(checked) << checked.error().what;
    ASSERT_FALSE(checked.value().finding) << "seed " << seed << ": " << checked.value().finding->rule << ": "
                                          << checked.value().finding->what;
    ASSERT_EQ(checked.value().note, "");
    messages += checked.value().messages;
    tokens += checked.value().tokens;
    const auto again = trace::replay(r);
    ASSERT_TRUE(again) << again.error().what;
    ASSERT_FALSE(again.value().difference) << "seed " << seed << ": " << again.value().difference->what;
    ASSERT_EQ(again.value().note, "");
    ASSERT_EQ(again.value().compared, again.value().recorded) << "seed " << seed;
    compared += again.value().compared;
    for (const trace::Event& e : r.events) {
      sampled += std::holds_alternative<Sampled>(e.message) ? 1 : 0;
      saved += std::holds_alternative<StateWritten>(e.message) || std::holds_alternative<StateRead>(e.message) ? 1 : 0;
      if (const auto* launch = std::get_if<Launch>(&e.message))
        std::for_each(launch->plan->effects.begin(), launch->plan->effects.end(), count);
    }
  }
  std::printf("%llu messages and %llu tokens checked, %llu outputs replayed, %llu of them the sampler's and %llu the spill core's\n",
              static_cast<unsigned long long>(messages), static_cast<unsigned long long>(tokens), static_cast<unsigned long long>(compared),
              static_cast<unsigned long long>(sampled), static_cast<unsigned long long>(saved));
  EXPECT_GT(messages, 100'000u);
  EXPECT_GT(compared, 50'000u);
  EXPECT_GT(tokens, 10'000u);
  EXPECT_GT(sampled, 1'000u);
  EXPECT_GT(saved, 50u);
  EXPECT_GT(snapshots, 100u);
}

// The first answer of type M in a recording of a life in which there is one, changed.
template <class M>
trace::Recording with_another(void (*change)(M&)) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    trace::Recording r = parsed(recorded(seed).recording);
    for (trace::Event& e : r.events) {
      auto* m = std::get_if<M>(&e.message);
      if (m == nullptr) continue;
      change(*m);
      return r;
    }
  }
  ADD_FAILURE() << "no seed has one";
  return {};
}

std::string difference_in(const trace::Recording& r) {
  const auto again = trace::replay(r);
  return again && again.value().difference ? again.value().difference->what : "";
}

TEST(Trace, TheReplayNoticesAnAnswerOfTheSamplerThatDoesNotFit) {
  EXPECT_NE(difference_in(with_another<Sampled>([](Sampled& m) {
              SampledBatch other = *m.batch;
              ++other.rows.at(0).request.generation;
              m.batch = Shared<SampledBatch>::of(std::move(other));
            })),
            "");
  EXPECT_NE(difference_in(with_another<Sampled>([](Sampled& m) {
              SampledBatch other = *m.batch;
              other.rows.at(0).status = CellStatus::poisoned;
              m.batch = Shared<SampledBatch>::of(std::move(other));
            })),
            "");
}

TEST(Trace, TheReplayNoticesAnAnswerOfTheSpillCoreThatDoesNotFit) {
  EXPECT_NE(difference_in(with_another<StateWritten>([](StateWritten& m) { m.error.code = ErrorCode::overloaded; })), "");
  EXPECT_NE(difference_in(with_another<StateRead>([](StateRead& m) { ++m.place; })), "");
}

TEST(Trace, TheReplayNoticesAChangedMessageAndStopsWhereItIsTold) {
  trace::Recording r = parsed(recorded(1).recording);
  std::uint64_t half = 0;
  for (const trace::Event& e : r.events)
    if (e.head.kind == trace::RecordKind::received && e.head.to.sender == actors::Sender::scheduler) half = half == 0 ? e.head.seq : half;
  const auto all = trace::replay(r), part = trace::replay(r, {.until = half});
  ASSERT_TRUE(all && part);
  EXPECT_FALSE(part.value().difference);
  EXPECT_LT(part.value().handled, all.value().handled);
  EXPECT_NE(part.value().state, all.value().state);
  EXPECT_NE(part.value().state.find("\"scheduler\": {\"waiting\": "), std::string::npos) << part.value().state;
  for (trace::Event& e : r.events) {
    auto* deliver = std::get_if<Deliver>(&e.message);
    if (deliver == nullptr || deliver->batch->events.empty()) continue;
    TokenBatch other = *deliver->batch;
    other.events[0].id ^= 1;
    deliver->batch = Shared<TokenBatch>::of(std::move(other));
    break;
  }
  const auto changed = trace::replay(r);
  ASSERT_TRUE(changed);
  ASSERT_TRUE(changed.value().difference);
  EXPECT_NE(changed.value().difference->what.find("Tokens{"), std::string::npos) << changed.value().difference->what;
}

TEST(Trace, AFailureLeavesARecordingThatNamesTheRule) {
  const Faults faults{SchedulerFault::deliver_twice, {}, {}};
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const Scenario scenario = make_scenario(seed);
    if (run_scenario(scenario, faults).violation.empty()) continue;
    const std::string said = leave_recording(scenario, faults, shrink(scenario, faults));
    const std::string command = "; look at it: troupe trace check ";
    ASSERT_EQ(said.compare(0, command.size(), command), 0) << said;
    const auto left = trace::read_recording(said.substr(command.size()));
    ASSERT_TRUE(left) << left.error().what;
    const auto checked = trace::check(left.value());
    ASSERT_TRUE(checked && checked.value().finding);
    EXPECT_EQ(checked.value().finding->rule, "R5");
    return;
  }
  FAIL() << "nothing failed";
}

struct Control {
  const char* name;
  Faults faults;
  const char* rule;
  Life life = Life::plain;
};

// Every switch of the cores but a few: SpillFault::trust_files is below, since it breaks no rule that one recording can show;
// that of a snapshot that goes too early is in hybrid_test, and those of copies on a stream of their own are in controls_test.
const Control kControls[] = {{"KeepOverrun", {SchedulerFault::keep_overrun, {}, {}}, "R2"},
                             {"IgnoreMaskChange", {SchedulerFault::ignore_mask_change, {}, {}}, "R2"},
                             {"DropTerminal", {SchedulerFault::drop_terminal, {}, {}}, "R5"},
                             {"DeliverTwice", {SchedulerFault::deliver_twice, {}, {}}, "R5"},
                             {"ForgetEpoch", {SchedulerFault::forget_epoch, {}, {}}, "R2"},
                             {"FreeAtFinish", {{}, RouterFault::free_at_finish, {}}, "R3"},
                             {"SkipRollback", {{}, RouterFault::skip_rollback, {}}, "R2"},
                             {"ReuseRingEarly", {{}, RouterFault::reuse_ring_early, {}}, "R4"},
                             {"OptimisticLength", {{}, RouterFault::optimistic_length, {}}, "R2"},
                             {"LoraInFlight", {{}, RouterFault::lora_in_flight, {}}, "R9", Life::lora},
                             {"LoraAtFinish", {{}, RouterFault::lora_at_finish, {}}, "R9", Life::lora},
                             {"FreeBeforeCopy", {{}, RouterFault::free_before_copy, {}}, "R3"},
                             {"NewestState", {{}, RouterFault::newest_state, {}}, "R2", Life::hybrid},
                             {"StatesAtFinish", {{}, RouterFault::states_at_finish, {}}, "R3", Life::hybrid},
                             {"ShiftSnapshot", {{}, RouterFault::shift_snapshot, {}}, "R2", Life::hybrid},
                             {"SnapshotUnsettled", {{}, RouterFault::snapshot_unsettled, {}}, "R2", Life::hybrid},
                             {"SaveNewestState", {{}, RouterFault::save_newest_state, {}}, "R2", Life::hybrid},
                             {"StaleCell", {{}, RouterFault::stale_cell, {}}, "R6"},
                             {"NeverCloses", {{}, {}, {}, LoraFault::never_closes}, "R9", Life::lora},
                             {"KeepGeneration", {{}, {}, {}, LoraFault::keep_generation}, "R9", Life::lora}};
constexpr std::size_t kElsewhere = 3;
static_assert(static_cast<std::size_t>(SchedulerFault::forget_epoch) + static_cast<std::size_t>(RouterFault::trust_half_copy) +
                      static_cast<std::size_t>(LoraFault::keep_generation) ==
                  std::size(kControls) + kElsewhere,
              "every switch has its control");

class TraceControls : public testing::TestWithParam<Control> {};

TEST_P(TraceControls, TheCheckNamesTheRule) {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= 1000 && found == 0; ++seed) {
    const Outcome outcome = recorded(seed, GetParam().faults, GetParam().life);
    if (outcome.recording.empty()) continue;
    const auto checked = trace::check(parsed(outcome.recording));
    ASSERT_TRUE(checked);
    if (!checked.value().finding || checked.value().finding->rule != GetParam().rule) continue;
    found = seed;
    std::printf("seed %llu: %s: %s\n", static_cast<unsigned long long>(seed), GetParam().rule, checked.value().finding->what.c_str());
  }
  EXPECT_NE(found, 0u) << "within 1000 seeds";
}

INSTANTIATE_TEST_SUITE_P(All, TraceControls, testing::ValuesIn(kControls), [](const auto& info) { return info.param.name; });

// A damaged file that is trusted gives a wrong token by the rules: it takes the same life without the switch to see it.
TEST(TraceControls, TheDiffFindsATrustedFile) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const Outcome trusting = recorded(seed, {{}, {}, SpillFault::trust_files}, Life::plain, true);
    if (trusting.violation.empty()) continue;
    const auto d = trace::diff(parsed(recorded(seed, {}, Life::plain, true).recording), parsed(trusting.recording));
    ASSERT_TRUE(d) << d.error().what;
    ASSERT_TRUE(d.value().divergence) << "seed " << seed << ": " << trusting.violation;
    std::printf("seed %llu: %s, %s\n", static_cast<unsigned long long>(seed), d.value().divergence->what.c_str(),
                d.value().divergence->cause.c_str());
    return;
  }
  FAIL() << "within 400 seeds";
}

}  // namespace
}  // namespace troupe::sim
