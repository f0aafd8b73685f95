#include "tools/troupe/replica_table.h"

#include <gtest/gtest.h>

namespace troupe::tools {
namespace {

constexpr const char* kBody = R"({"model": "m", "draining": false, "running": 5, "waiting": 2, "unplaced": 1, "tokens": 1000, "replicas": [
  {"index": 0, "incarnation": 1, "name": "host:0", "state": "up", "live": 4, "outstanding_tokens": 812, "running": 4, "waiting": 1,
   "steps": 200, "steps_ahead": 150, "tokens": 700, "facts": {"total_blocks": 100, "used_blocks": 20, "fenced_blocks": 5},
   "adapters": ["pirate", "caps"], "tries": 0},
  {"index": 1, "incarnation": 3, "name": "node-a/host:0", "state": "waiting", "live": 0, "running": 0, "steps": 0, "tokens": 0,
   "facts": {}, "adapters": [], "tries": 2, "error": "the device is gone"}]})";

TEST(ReplicaTable, ShowsALineForEachReplicaAndWhyOneDoesNotServe) {
  const auto now = parse_replicas(kBody);
  ASSERT_TRUE(now) << now.error().what;
  const auto lines = replica_table(now.value(), nullptr, 0, 200);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0], "m   running 5   waiting 2   on no replica 1   - tokens/s");
  EXPECT_EQ(lines[1], "REPLICA        STATE    BATCH QUEUE  KV                 AHEAD  TOKENS/S      WORK LIFE  ADAPTERS");
  EXPECT_EQ(lines[2], "host:0         up           4     1  [###.......]  25 %   75 %         -       812    1  pirate, caps");
  EXPECT_EQ(lines[3], "node-a/host:0  waiting      0     0                  -      -         -         0    3");
  EXPECT_EQ(lines[4], "               the device is gone");
}

TEST(ReplicaTable, CountsPerSecondSinceTheSampleBefore) {
  const auto before = parse_replicas(kBody);
  auto now = parse_replicas(kBody);
  now.value().tokens += 300;
  now.value().replicas[0].tokens += 250;
  now.value().replicas[0].steps += 50;
  now.value().replicas[0].steps_ahead += 49;
  // Another life: all of it is new, however little that is.
  now.value().replicas[1].life = 4;
  now.value().replicas[1].tokens = 50;
  const auto lines = replica_table(now.value(), &before.value(), 2, 200);
  EXPECT_NE(lines[0].find(" 150.0 tokens/s"), std::string::npos) << lines[0];
  EXPECT_NE(lines[2].find(" 98 % "), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find(" 125.0 "), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find(" 25.0 "), std::string::npos) << lines[3];
}

TEST(ReplicaTable, KeepsToTheWidth) {
  auto now = parse_replicas(kBody);
  now.value().replicas[0].name = "h\xC3\xB6st";
  for (const std::string& line : replica_table(now.value(), nullptr, 0, 3)) {
    EXPECT_LE(line.size(), 4u);
    EXPECT_NE(line.back(), '\xC3');
  }
}

TEST(ReplicaTable, WhatIsNoAnswerIsAnError) {
  for (const char* body : {"", "[]", "{}", R"({"replicas": 3})", R"({"object": "list", "data": []})"}) {
    const auto parsed = parse_replicas(body);
    ASSERT_FALSE(parsed) << body;
    EXPECT_EQ(parsed.error().code, ErrorCode::io_failed);
  }
  EXPECT_TRUE(parse_replicas(R"({"replicas": [3, {"name": 7, "steps": -1, "facts": [], "adapters": [1]}]})"));
}

}  // namespace
}  // namespace troupe::tools
