// Sequences that are saved and brought back, over the cores: the streams are the undisturbed ones at every depth, whatever
// the files do, and whenever a request ends.
#include <gtest/gtest.h>

#include "tests/sim/workload.h"
#include "tests/sim/world.h"

namespace troupe::sim {
namespace {

// Every other seed has a stream for copies.
WorldOptions pressed(std::uint64_t seed, std::uint32_t depth) {
  WorldOptions o;
  o.seed = seed;
  o.depth = depth;
  o.device.kv_blocks = 20;
  o.device.spill_places = 2;
  o.device.copy_stream = seed % 2 == 1;
  return o;
}

std::vector<Request> workload(std::uint64_t seed, const SimDeviceOptions& device) {
  WorkloadOptions w;
  w.seed = seed;
  return make_workload(w, device);
}

std::map<std::uint64_t, Stream> undisturbed(const std::vector<Request>& requests) {
  WorldOptions o;
  o.depth = 1;
  o.in_order = true;
  o.device.kv_blocks = 256;
  World world(o);
  for (const Request& q : requests) world.submit(q);
  world.run();
  EXPECT_EQ(world.violation(), "");
  return world.streams();
}

// Runs it to the end, and what differs.
std::string run(World& world, const std::vector<Request>& requests, const std::map<std::uint64_t, Stream>& right) {
  std::mt19937_64 random(requests.size());
  for (const Request& q : requests) {
    world.post(q, &right.at(q.client));
    for (std::uint64_t n = random() % 40; n > 0 && world.violation().empty(); --n) world.step();
  }
  world.run();
  if (world.violation().empty()) world.finish();
  return world.violation();
}

TEST(Spill, StreamsAreTheUndisturbedOnesAtEveryDepth) {
  std::uint64_t restores = 0, preemptions = 0, marks = 0;
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    const auto requests = workload(seed, {});
    const auto right = undisturbed(requests);
    for (const std::uint32_t depth : {1u, 2u, 4u, 8u}) {
      WorldOptions o = pressed(seed, depth);
      o.seed = seed * 10 + depth;
      World world(o);
      ASSERT_EQ(run(world, requests, right), "") << "seed " << seed << " depth " << depth;
      const auto& stats = world.scheduler().stats();
      marks += world.router().stats().marks;
      restores += stats.restores;
      preemptions += stats.preemptions;
      EXPECT_EQ(stats.spill_failures + stats.restore_failures, 0u);
    }
  }
  EXPECT_GT(restores, 100u);
  EXPECT_GT(marks, 100u);
  EXPECT_GT(restores * 2, preemptions) << "most of the preempted have blocks worth saving";
}

// Every third file is damaged, every third cannot be written, every third cannot be read.
TEST(Spill, WhateverTheFilesDoTheStreamsAreTheSame) {
  std::uint64_t failures = 0, spill_failures = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const auto requests = workload(seed, {});
    const auto right = undisturbed(requests);
    for (std::uint32_t kind = 0; kind < 4; ++kind) {
      WorldOptions o = pressed(seed, 3);
      for (std::uint64_t n = 1; n < 100; n += 3) {
        if (kind == 0) o.files.damages.insert(n);
        if (kind == 1) o.files.truncations.insert(n);
        if (kind == 2) o.files.read_errors.insert(n);
        if (kind == 3) o.files.write_errors.insert(n);
      }
      World world(o);
      ASSERT_EQ(run(world, requests, right), "") << "seed " << seed << " kind " << kind;
      failures += world.scheduler().stats().restore_failures;
      spill_failures += world.scheduler().stats().spill_failures;
    }
  }
  EXPECT_GT(failures, 50u);
  EXPECT_GT(spill_failures, 50u);
}

// A request is cancelled at every moment of its life, saved or not: nothing is left, and the others go on.
TEST(Spill, ACancelAtAnyMomentLeavesNothing) {
  std::uint64_t saving = 0, saved = 0, restoring = 0;
  const auto requests = workload(7, {});
  const auto right = undisturbed(requests);
  for (std::uint64_t moment = 0; moment < 1500; moment += 3) {
    World world(pressed(moment % 10 + 1, 2));
    for (const Request& q : requests) world.post(q, &right.at(q.client));
    for (std::uint64_t n = 0; n < moment && world.violation().empty(); ++n) world.step();
    for (std::uint64_t client = 4; client <= 12; client += 2) world.cancel(client);
    world.run();
    if (world.violation().empty()) world.finish();
    ASSERT_EQ(world.violation(), "") << "moment " << moment;
    saving += world.scheduler().stats().ended_saving;
    saved += world.scheduler().stats().spills_dropped;
    restoring += world.scheduler().stats().ended_restoring;
  }
  EXPECT_GT(saving, 5u);
  EXPECT_GT(saved, 5u);
  EXPECT_GT(restoring, 5u);
}

}  // namespace
}  // namespace troupe::sim
