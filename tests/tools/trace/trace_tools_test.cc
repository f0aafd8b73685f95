// What `troupe trace` says of recordings of simulated lives.
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include <map>
#include <vector>

#include "actors/trace/diff.h"
#include "tests/sim/workload.h"
#include "tests/sim/world.h"
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

// The rules of the format: slices of a track nest, times are in order, and every arrow has both ends, each within a slice.
TEST(Perfetto, ArrowsBeginAndEndWithinSlices) {
  const auto parsed = boost::json::parse(perfetto(life(2)));
  struct Span {
    double begin, end;
  };
  std::map<std::int64_t, std::vector<Span>> slices;
  std::map<std::int64_t, std::vector<std::pair<std::int64_t, double>>> arrows;
  std::map<std::int64_t, std::string> names;
  std::size_t counters = 0;
  for (const auto& v : parsed.at("traceEvents").as_array()) {
    const auto& e = v.as_object();
    const auto& ph = e.at("ph").as_string();
    if (ph == "M") {
      if (e.at("name").as_string() == "thread_name") names[e.at("tid").as_int64()] = e.at("args").at("name").as_string().c_str();
      continue;
    }
    const double ts = e.at("ts").to_number<double>();
    EXPECT_GE(ts, 0);
    if (ph == "C") {
      ++counters;
      continue;
    }
    const std::int64_t tid = e.at("tid").as_int64();
    EXPECT_FALSE(e.at("name").as_string().empty());
    if (ph == "X") {
      const double dur = e.at("dur").to_number<double>();
      EXPECT_GE(dur, 0);
      auto& track = slices[tid];
      EXPECT_LE(track.empty() ? 0 : track.back().end, ts + 1e-6) << "on track " << tid;
      track.push_back({ts, ts + dur});
    } else {
      ASSERT_TRUE(ph == "s" || ph == "f");
      auto& ends = arrows[e.at("id").as_int64()];
      EXPECT_EQ(ends.size(), ph == "s" ? 0u : 1u);
      ends.push_back({tid, ts});
    }
  }
  EXPECT_GT(arrows.size(), 50u);
  EXPECT_GT(counters, 10u);
  for (const auto& [id, ends] : arrows) {
    ASSERT_EQ(ends.size(), 2u) << id;
    EXPECT_LE(ends[0].second, ends[1].second);
    for (const auto& [tid, ts] : ends) {
      bool within = false;
      for (const Span& s : slices[tid]) within = within || (s.begin <= ts + 1e-6 && ts <= s.end + 1e-6);
      EXPECT_TRUE(within) << "arrow " << id << " at " << ts << " on " << names[tid];
    }
  }
  for (const auto& [tid, spans] : slices) EXPECT_FALSE(names[tid].empty()) << tid;
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
