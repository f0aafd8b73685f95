// What `troupe trace` says of recordings of simulated lives.
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include <algorithm>
#include <vector>

#include "actors/trace/diff.h"
#include "tests/sim/scenario.h"
#include "tests/sim/workload.h"
#include "tests/sim/world.h"
#include "tests/tools/trace/chrome_trace.h"
#include "tools/trace/html.h"
#include "tools/trace/lines.h"
#include "tools/trace/perfetto.h"
#include "tools/trace/story.h"

namespace troupe::tools {
namespace {

using actors::trace::Recording;

Recording life(std::uint32_t depth, actors::SchedulerFault fault = actors::SchedulerFault::none) {
  sim::WorldOptions o;
  o.record = true;
  o.depth = depth;
  o.fault = fault;
  o.in_order = true;
  sim::World world(o);
  for (std::uint64_t client = 1; client <= 6; ++client) {
    Request q = sim::greedy_request(client, 5 + static_cast<std::uint32_t>(client) * 4, 12);
    q.stop.stop_token_ids = {3, 7, 11, 15, 19, 23, 27, 31};
    world.post(q, nullptr);
  }
  world.run();
  if (fault == actors::SchedulerFault::none) world.finish();
  const auto bytes = world.recording();
  auto r = actors::trace::parse_recording(bytes.data(), bytes.size());
  EXPECT_TRUE(r) << r.error().what;
  return std::move(r.value());
}

TEST(Diff, RunningAheadGivesTheSameStreamsAndAnotherProtocol) {
  const auto d = actors::trace::diff(life(1), life(2));
  ASSERT_TRUE(d) << d.error().what;
  EXPECT_FALSE(d.value().divergence) << d.value().divergence->what;
  EXPECT_EQ(d.value().requests, 6u);
  EXPECT_GT(d.value().tokens, 6u);
  bool depth = false;
  for (const std::string& line : d.value().protocol) depth = depth || line == "depth: 1 in A, 2 in B";
  EXPECT_TRUE(depth);
}

TEST(Diff, ARunIsLikeItself) {
  const Recording r = life(2);
  const auto d = actors::trace::diff(r, r);
  ASSERT_TRUE(d);
  EXPECT_FALSE(d.value().divergence);
  EXPECT_TRUE(d.value().protocol.empty());
}

TEST(Diff, NamesTheFirstWrongTokenAndTheOverRunThatGaveIt) {
  const auto d = actors::trace::diff(life(1), life(2, actors::SchedulerFault::keep_overrun));
  ASSERT_TRUE(d);
  ASSERT_TRUE(d.value().divergence);
  EXPECT_NE(d.value().divergence->cause.find("an over-run: token"), std::string::npos) << d.value().divergence->cause;
  EXPECT_NE(d.value().divergence->cause.find("feed("), std::string::npos) << d.value().divergence->cause;
}

std::string list(const std::vector<std::string>& violations) {
  std::string out;
  for (const std::string& v : violations) out += v + "\n";
  return out;
}

// A life with much that can go wrong, or one with adapters.
Recording scenario(std::uint64_t seed, bool lora) {
  sim::Scenario s = lora ? sim::make_lora_scenario(seed) : sim::make_scenario(seed);
  s.world.record = true;
  const auto bytes = sim::run_scenario(s).recording;
  auto r = actors::trace::parse_recording(bytes.data(), bytes.size());
  EXPECT_TRUE(r) << r.error().what;
  return std::move(r.value());
}

TEST(Perfetto, KeepsTheRulesOfTheFormatAndShowsEveryStep) {
  const Recording r = life(3);
  const ChromeTrace trace = check_chrome_trace(perfetto(r));
  EXPECT_TRUE(trace.violations.empty()) << list(trace.violations);
  std::vector<std::string> steps;
  std::size_t receipts = 0, slices = 0;
  for (const auto& e : r.events) {
    receipts += e.head.kind == actors::trace::RecordKind::received ? 1 : 0;
    if (const auto* done = std::get_if<EventDone>(&e.message)) steps.push_back(label(done->ticket));
  }
  EXPECT_EQ(trace.slices.at("device stream"), steps);
  for (const auto& [track, names] : trace.slices)
    if (track != "device stream") slices += names.size();
  EXPECT_EQ(slices, receipts);
  const auto& in_flight = trace.counters.at("steps in flight");
  EXPECT_EQ(*std::max_element(in_flight.begin(), in_flight.end()), 3);
  EXPECT_GT(trace.counters.at("blocks in use").size(), 10u);
  EXPECT_GT(trace.arrows, receipts * 3 / 4) << "all but what comes from outside has a cause";
}

TEST(Perfetto, KeepsTheRulesOfTheFormatWhateverHappened) {
  std::size_t copies = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const Recording r = scenario(seed, seed % 3 == 0);
    const ChromeTrace trace = check_chrome_trace(perfetto(r));
    ASSERT_TRUE(trace.violations.empty()) << "seed " << seed << ":\n" << list(trace.violations);
    for (const char* track : {"device stream", "copy stream of the device"})
      if (const auto stream = trace.slices.find(track); stream != trace.slices.end())
        copies += static_cast<std::size_t>(std::count(stream->second.begin(), stream->second.end(), "copy in"));
  }
  EXPECT_GT(copies, 0u) << "nothing was restored";
}

// The control: the checker sees what is wrong.
TEST(Perfetto, WhatBreaksARuleOfTheFormatIsNoticed) {
  const std::string right = perfetto(life(2));
  ASSERT_TRUE(check_chrome_trace(right).violations.empty());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = right;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return check_chrome_trace(text.replace(at, from.size(), to)).violations;
  };
  EXPECT_FALSE(changed("\"ph\":\"s\"", "\"ph\":\"f\"").empty()) << "an arrow without a beginning";
  EXPECT_FALSE(changed("\"bp\":\"e\",", "").empty()) << "an arrow to the slice after";
  EXPECT_FALSE(changed("\"ph\":\"X\",\"pid\":1,\"tid\":2", "\"ph\":\"X\",\"pid\":1,\"tid\":63").empty()) << "a track without a name";
  EXPECT_FALSE(changed("\"ph\":\"X\"", "\"ph\":\"Y\"").empty()) << "another kind";
  EXPECT_FALSE(changed("\"name\":\"process_name\"", "\"name\":\"process_nam\"").empty());
  EXPECT_FALSE(changed("\"dur\":", "\"dur\":9999999, \"was\":").empty()) << "slices that overlap";
  EXPECT_FALSE(changed("\"ts\":", "\"ts\":-1").empty()) << "a time before the beginning";
  EXPECT_FALSE(changed("]}", "").empty()) << "no JSON";
}

TEST(Lines, FiltersAndFollowsARequest) {
  const Recording r = life(2);
  LineFilter only;
  only.type = "Launch";
  LinePicker launches(only);
  std::size_t n = 0;
  for (const auto& e : r.events)
    if (launches.pick(e, 0)) {
      ++n;
      EXPECT_NE(line(e, 0).find("scheduler > router  Launch"), std::string::npos);
    }
  EXPECT_GT(n, 5u);
  LineFilter one;
  one.client = 3;
  LinePicker picker(one);
  std::string text;
  for (const auto& e : r.events)
    if (picker.pick(e, 0)) text += line(e, 0);
  EXPECT_NE(text.find("Admit 3#3"), std::string::npos);
  EXPECT_NE(text.find("Launch"), std::string::npos);
  EXPECT_EQ(text.find("Admit 2#2"), std::string::npos);
}

TEST(Lines, AMessageInFullHasItsCausesUpToTheRoot) {
  const Recording r = life(2);
  for (const auto& e : r.events) {
    if (!std::holds_alternative<Deliver>(e.message)) continue;
    const std::string text = show(r, e.head.seq);
    EXPECT_NE(text.find("Settled"), std::string::npos) << text;
    EXPECT_NE(text.find("EventDone"), std::string::npos) << text;
    return;
  }
  FAIL() << "nothing was delivered";
}

TEST(Story, TellsARequestFromItsAdmissionToItsEnd) {
  const std::string text = story(life(2), "2");
  for (const char* part : {"2#2 was accepted", "was opened as", "a chunk of its prompt", "got token 0", "ended by", "given back"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  EXPECT_EQ(story(life(2), "77"), "");
}

TEST(Html, ThePageHoldsTheMessagesAndNeedsNoNetwork) {
  const Recording r = life(2);
  const std::string page = html(r);
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);
  const std::string open = "type=\"application/json\">";
  const std::size_t begin = page.find(open) + open.size();
  const auto data = boost::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  std::size_t sent = 0;
  for (const auto& e : r.events) sent += e.head.kind == actors::trace::RecordKind::sent ? 1 : 0;
  EXPECT_EQ(data.at("messages").as_array().size(), sent);
  EXPECT_EQ(data.at("total").to_number<std::size_t>(), sent);
  for (const auto& m : data.at("messages").as_array()) {
    ASSERT_EQ(m.as_array().size(), 10u);
    EXPECT_LT(m.at(3).to_number<std::size_t>(), data.at("actors").as_array().size());
  }
  EXPECT_LT(html(r, 10).size(), page.size() / 2);
}

TEST(Stats, CountsWhatHappened) {
  const std::string text = stats(life(2));
  for (const char* part : {"6 requests", "host loop", "over-runs", "device busy", "scheduler > router", "Launch"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
}

}  // namespace
}  // namespace troupe::tools
