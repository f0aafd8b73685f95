// LoRA commands in the simulator: R9 after every message over many seeds, negative controls, and the public failures of
// engines like this one whose subject is adapters (named as scenarios are).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "tests/sim/scenario.h"
#include "tests/sim/workload.h"

namespace troupe::sim {
namespace {

using actors::LoraFault;
using actors::RouterFault;
using Kind = LoraCommand::Kind;

TEST(SimLora, ThousandsOfSeedsBreakNoRuleAndTakeEveryPath) {
  actors::LoraStats sum;
  std::uint64_t messages = 0;
  constexpr std::uint64_t kSeeds = 4000;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Outcome outcome = run_scenario(make_lora_scenario(seed));
    ASSERT_EQ(outcome.violation, "") << "seed " << seed;
    messages += outcome.messages;
    const actors::LoraStats& s = outcome.lora;
    sum.bound += s.bound, sum.unknown += s.unknown, sum.delayed += s.delayed, sum.loaded += s.loaded, sum.replaced += s.replaced;
    sum.retired += s.retired, sum.unloaded += s.unloaded, sum.rotated += s.rotated, sum.waited += s.waited;
    sum.preempted += s.preempted, sum.withdrawn += s.withdrawn, sum.timed_out += s.timed_out, sum.failed += s.failed;
  }
  for (const std::uint64_t n : {sum.bound, sum.unknown, sum.delayed, sum.loaded, sum.replaced, sum.retired, sum.unloaded, sum.rotated,
                                sum.waited, sum.preempted, sum.withdrawn, sum.timed_out, sum.failed})
    EXPECT_GT(n, 0u);
  std::printf(
      "%llu messages; requests: %llu bound, %llu unknown, %llu delayed; commands: %llu loaded (%llu replaced, %llu retired), %llu "
      "unloaded, %llu rotated, %llu waited, %llu preempted, %llu withdrawn, %llu timed out, %llu failed\n",
      static_cast<unsigned long long>(messages), static_cast<unsigned long long>(sum.bound), static_cast<unsigned long long>(sum.unknown),
      static_cast<unsigned long long>(sum.delayed), static_cast<unsigned long long>(sum.loaded),
      static_cast<unsigned long long>(sum.replaced), static_cast<unsigned long long>(sum.retired),
      static_cast<unsigned long long>(sum.unloaded), static_cast<unsigned long long>(sum.rotated),
      static_cast<unsigned long long>(sum.waited), static_cast<unsigned long long>(sum.preempted),
      static_cast<unsigned long long>(sum.withdrawn), static_cast<unsigned long long>(sum.timed_out),
      static_cast<unsigned long long>(sum.failed));
}

struct Control {
  const char* name;
  Faults faults;
  std::uint64_t seeds;  // within which it is found
};

class LoraControls : public testing::TestWithParam<Control> {};

TEST_P(LoraControls, IsFound) {
  std::uint64_t found = 0;
  std::string violation;
  for (std::uint64_t seed = 1; seed <= GetParam().seeds && found == 0; ++seed) {
    violation = run_scenario(make_lora_scenario(seed), GetParam().faults).violation;
    if (!violation.empty()) found = seed;
  }
  EXPECT_NE(found, 0u) << "the simulator did not notice it in " << GetParam().seeds << " seeds";
  std::printf("found by seed %llu: %s\n", static_cast<unsigned long long>(found), violation.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, LoraControls,
                         testing::Values(Control{"ApplyWithATicketInFlight", {{}, RouterFault::lora_in_flight, {}, {}}, 200},
                                         Control{"CountUsersAtTheirFinish", {{}, RouterFault::lora_at_finish, {}, {}}, 3000},
                                         Control{"ReuseTheOldGenerationsBlocks", {{}, {}, {}, LoraFault::keep_generation}, 3000},
                                         Control{"AdmissionStaysOpen", {{}, {}, {}, LoraFault::never_closes}, 200}),
                         [](const auto& info) { return info.param.name; });

LoraCommand load(const std::string& name, const std::string& path, std::uint32_t slot = 0) {
  LoraCommand c;
  c.kind = slot == 0 ? Kind::promote_disk : Kind::load_into_slot;
  c.name = name, c.path = path, c.slot = slot;
  return c;
}
LoraCommand unload(const std::string& name) {
  LoraCommand c;
  c.kind = Kind::unload;
  c.name = name;
  return c;
}

WorldOptions options(std::uint64_t seed, std::uint32_t max_loras) {
  WorldOptions o;
  o.seed = seed;
  o.depth = 3;
  o.device.max_loras = max_loras;
  return o;
}

Request ask(std::uint64_t client, const std::string& adapter, std::uint32_t prompt, std::uint32_t tokens) {
  Request q = greedy_request(client, prompt, tokens);
  q.adapter = adapter;
  return q;
}

void steps(World& world, std::uint32_t n) {
  for (; n > 0 && world.violation().empty(); --n) world.step();
}
void finish(World& world) {
  world.run(200'000);
  if (world.violation().empty()) world.finish();
  ASSERT_EQ(world.violation(), "");
}
std::uint32_t succeeded(const World& world) {
  return static_cast<std::uint32_t>(
      std::count_if(world.answers().begin(), world.answers().end(), [](const LoraAnswer& a) { return a.error.code == ErrorCode::none; }));
}

// vllm 13698: an adapter is loaded while others are generating, and nobody notices but who asked for it.
TEST(Scenario, LoraLoadWhileRunning) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    World world(options(seed, 3));
    world.lora(load("a", "file1"));
    for (std::uint64_t c = 1; c <= 4; ++c) world.post(ask(c, c % 2 == 0 ? "a" : "", 6, 20), nullptr);
    steps(world, 60);
    world.lora(load("b", "file2"));
    for (std::uint64_t c = 5; c <= 8; ++c) world.post(ask(c, c % 2 == 0 ? "b" : "a", 6, 20), nullptr);
    steps(world, 20);
    world.lora(load("c", "file3"));
    world.post(ask(9, "c", 6, 20), nullptr);
    finish(world);
    EXPECT_EQ(succeeded(world), 3u);
    EXPECT_EQ(world.finishes().size(), 9u);
    for (const Finish& f : world.finishes()) EXPECT_EQ(f.reason, FinishReason::length);
  }
}

// sglang 36894: an unload waited for a count that never reached zero. Here the count follows the sequences, whatever ends
// them, and the wait is bounded.
TEST(Scenario, LoraUnloadDeadlock) {
  std::uint32_t done = 0, timed_out = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    WorldOptions o = options(seed, 2);
    if (seed % 3 == 0) o.device.fail_steps = {3, 4, 7}, o.device.nan_rows = {{5, 0}, {6, 0}};
    o.device.kv_blocks = 20;  // preemptions too
    World world(o);
    world.lora(load("a", "file1"));
    for (std::uint64_t c = 1; c <= 6; ++c) world.post(ask(c, "a", 5, 25), nullptr);
    steps(world, 80);
    world.cancel(2), world.cancel(4);
    LoraCommand bounded = unload("a");
    bounded.max_wait = seed % 10 == 0 ? 100'000 : 5'000'000;
    world.lora(bounded);
    world.post(ask(7, "a", 5, 5), nullptr);
    finish(world);
    ASSERT_EQ(world.answers().size(), 2u);
    const LoraAnswer& answer = world.answers().back();
    done += answer.error.code == ErrorCode::none ? 1 : 0;
    timed_out += answer.error.code == ErrorCode::timed_out ? 1 : 0;
    EXPECT_EQ(world.finishes().size(), 7u);
  }
  EXPECT_EQ(done + timed_out, 100u);
  EXPECT_GE(done, 90u) << "with time enough the count reaches zero";
  EXPECT_GT(timed_out, 0u);
}

// vllm 42125: a name that was loaded again found the old adapter's prefix blocks. World compares every token with those of
// the generation that the request is bound to.
TEST(Scenario, LoraSameName) {
  std::uint64_t hits = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    World world(options(seed, 2));
    world.lora(load("a", "file1"));
    for (std::uint64_t c = 1; c <= 3; ++c) {
      Request q = ask(c, "a", 17, 8);
      q.prompt = greedy_request(1, 17, 8).prompt;
      world.post(std::move(q), nullptr);
      steps(world, c == 1 ? 150 : 0);
    }
    steps(world, seed % 2 == 0 ? 400 : 40);
    world.lora(load("a", "file2"));
    for (std::uint64_t c = 4; c <= 6; ++c) {
      Request q = ask(c, "a", 17, 8);
      q.prompt = greedy_request(1, 17, 8).prompt;
      world.post(std::move(q), nullptr);
    }
    finish(world);
    EXPECT_EQ(succeeded(world), 2u);
    EXPECT_NE(world.stream(1).tokens, world.stream(4).tokens) << "another generation is another model";
    hits += world.router().stats().prefix_hits;
  }
  EXPECT_GT(hits, 30u) << "prefixes are shared within a generation";
}

// llama.cpp 26207: requests with different adapters shared the prompt cache.
TEST(Scenario, LoraSharedPrefix) {
  std::uint64_t hits = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    World world(options(seed, 2));
    world.lora(load("a", "file1"));
    world.lora(load("b", "file2"));
    const char* names[] = {"a", "b", ""};
    for (std::uint64_t c = 1; c <= 9; ++c) {
      Request q = ask(c, names[c % 3], 17, 6);
      q.prompt = greedy_request(1, 17, 6).prompt;
      world.post(std::move(q), nullptr);
      steps(world, 30);
    }
    finish(world);
    for (std::uint64_t c = 4; c <= 9; ++c) EXPECT_EQ(world.stream(c).tokens, world.stream(c - 3).tokens);
    EXPECT_NE(world.stream(1).tokens, world.stream(2).tokens);
    hits += world.router().stats().prefix_hits;
  }
  EXPECT_GT(hits, 60u);
}

// sglang 23141: more adapters were asked for than there are slots. Here a load says so, the others go on, and whoever asks
// later finds a slot once one has no users.
TEST(Scenario, LoraCap) {
  std::uint32_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    World world(options(seed, 2));
    world.lora(load("a", "file1"));
    world.lora(load("b", "file2"));
    for (std::uint64_t c = 1; c <= 6; ++c) world.post(ask(c, c % 2 == 0 ? "a" : "b", 6, 15), nullptr);
    steps(world, 30);
    world.lora(load("c", "file3"));
    world.post(ask(7, "c", 6, 5), nullptr);
    world.run();
    refused += world.answers().back().error.code == ErrorCode::slot_in_use ? 1 : 0;
    const std::size_t before = world.finishes().size();
    EXPECT_EQ(before, 7u);
    world.lora(load("c", "file3"));
    world.post(ask(8, "c", 6, 5), nullptr);
    finish(world);
    EXPECT_EQ(world.answers().back().error.code, ErrorCode::none);
    EXPECT_EQ(world.finishes().back().reason, FinishReason::length);
  }
  EXPECT_GT(refused, 20u);
}

// llama.cpp 10377: a load waited for idle slots under steady traffic, for ever. The queue never empties here, and every
// command ends within its bound; with admission left open it does not.
TEST(Scenario, LoraStarves) {
  for (const LoraFault fault : {LoraFault::none, LoraFault::never_closes}) {
    std::uint32_t ended = 0;
    constexpr std::uint32_t kSeeds = 30;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      WorldOptions o = options(seed, 1);
      o.lora_fault = fault;
      World world(o);
      world.lora(load("a", "file1"));
      std::uint64_t client = 0;
      const auto keep_busy = [&] {  // always four requests of the adapter that has to go, which do not end together
        while (world.violation().empty() && client < world.finishes().size() + 4)
          ++client, world.post(ask(client, "a", 4, 4 + client % 5), nullptr);
      };
      while (world.violation().empty() && (world.answers().empty() || client < 12)) keep_busy(), world.step();
      world.lora(load("b", "file2", 1));
      for (int i = 0; i < 1500 && world.violation().empty() && world.answers().size() < 2; ++i) keep_busy(), world.step();
      ended += world.answers().size() == 2 && world.answers()[1].error.code == ErrorCode::none ? 1 : 0;
    }
    if (fault == LoraFault::none)
      EXPECT_EQ(ended, kSeeds);
    else
      EXPECT_EQ(ended, 0u) << "the traffic must be steady enough to starve a load that leaves admission open";
  }
}

// Others' inter-token gap while a load, a rotation, a load under the same name and an unload run, and the queue never empties:
// in steps that settle, at most two. The same measure sees the users of an adapter that are held back.
TEST(SimLora, OthersWaitAtMostTwoStepsForTheirNextToken) {
  std::map<std::uint32_t, std::uint64_t> longest;  // by depth
  for (std::uint32_t depth = 1; depth <= 4; ++depth) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      WorldOptions o = options(seed, 2);
      o.depth = depth;
      o.device.context = 1000, o.device.kv_blocks = 1200;
      World world(o);
      world.lora(load("standing", "file0"));
      std::uint64_t client = 100;
      bool changing = false;
      const auto work = [&] {  // always four requests wait or run beside the bystanders
        while (world.violation().empty() && client < world.finishes().size() + 104) {
          ++client;
          world.post(ask(client,
                         changing && client % 2 == 0 ? "changing"
                         : client % 3 == 0           ? "standing"
                                                     : "",
                         5 + client % 30, 3 + client % 9),
                     nullptr);
        }
        world.step();
      };
      world.post(ask(1, "", 4, 900), nullptr);  // the bystanders
      world.post(ask(2, "standing", 4, 900), nullptr);
      while (world.violation().empty() && (world.stream(1).tokens.size() < 4 || world.stream(2).tokens.size() < 4)) work();
      LoraCommand rotate;
      rotate.kind = Kind::rotate;
      rotate.name = "changing";
      LoraCommand back = rotate;
      back.name.clear();
      std::size_t answered = world.answers().size();
      for (const LoraCommand& c : {load("changing", "file1"), rotate, load("changing", "file2"), back, unload("changing")}) {
        world.lora(c);
        changing = c.kind != Kind::unload;
        while (world.violation().empty() && world.answers().size() == answered) work();
        ++answered;
        for (int i = 0; i < 100; ++i) work();
      }
      ASSERT_EQ(world.violation(), "");
      EXPECT_EQ(succeeded(world), 6u);
      for (const std::uint64_t bystander : {1u, 2u}) {
        ASSERT_FALSE(world.stream(bystander).finish) << "it must see all of it";
        EXPECT_GT(world.stream(bystander).tokens.size(), 40u);
        EXPECT_LE(world.longest_gap(bystander), 2u) << "depth " << depth << ", seed " << seed;
        longest[depth] = std::max(longest[depth], world.longest_gap(bystander));
      }
      world.hold({1, 1}, world.now() + 300'000);
      for (int i = 0; i < 600; ++i) work();
      EXPECT_LE(world.longest_gap(1), 2u);
      EXPECT_GT(world.longest_gap(2), 2u);
      world.cancel(1), world.cancel(2);
      finish(world);
    }
  }
  for (const auto& [depth, gap] : longest)
    std::printf("depth %u: at most %llu steps from a token to the next\n", depth, static_cast<unsigned long long>(gap));
}

// A controller that dies while it holds the users of an adapter back stalls nobody: the lease expires.
TEST(Scenario, LoraLease) {
  World world(options(1, 1));
  world.lora(load("a", "file1"));
  world.post(ask(1, "a", 5, 30), nullptr);
  while (world.stream(1).tokens.empty()) ASSERT_TRUE(world.step());
  world.hold({1, 1}, world.now() + 50'000);
  finish(world);
  EXPECT_EQ(world.stream(1).finish->reason, FinishReason::length);
  EXPECT_GT(world.scheduler().stats().preemptions, 0u);
}

}  // namespace
}  // namespace troupe::sim
