#include "actors/dispatcher/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace troupe::actors {
namespace {

Request request(std::vector<Token> prompt, std::string adapter = "") {
  Request r;
  r.prompt = std::move(prompt);
  r.adapter = std::move(adapter);
  return r;
}

std::vector<Token> tokens(Token first, std::size_t n) {
  std::vector<Token> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = first + static_cast<Token>(i);
  return out;
}

std::vector<Placement::Candidate> loads(std::initializer_list<std::uint64_t> outstanding) {
  std::vector<Placement::Candidate> out;
  for (const std::uint64_t n : outstanding) out.push_back({static_cast<std::uint32_t>(out.size()), n, 1});
  return out;
}

TEST(Placement, WhereTheWorkEndsSoonest) {
  Placement p({}, 3, 4);
  EXPECT_EQ(p.choose(loads({30, 10, 20}), 1, 5, {}), 1u);
  EXPECT_EQ(p.choose(loads({10, 10, 20}), 1, 5, {}), 0u);
  // Twice as fast: three times the work ends later, less than twice ends sooner.
  EXPECT_EQ(p.choose(std::vector<Placement::Candidate>{{0, 100, 1}, {1, 190, 2}}, 1, 10, {}), 1u);
  EXPECT_EQ(p.choose(std::vector<Placement::Candidate>{{0, 100, 1}, {1, 300, 2}}, 1, 10, {}), 0u);
}

TEST(Placement, InTurnsAndPinned) {
  Placement turns({PlacementPolicy::round_robin}, 3, 4);
  for (std::uint32_t i = 0; i < 6; ++i) EXPECT_EQ(turns.choose(loads({9, 0, 0}), 1, 1, {}), i % 3);
  Placement pinned({PlacementPolicy::pinned}, 3, 4);
  EXPECT_EQ(pinned.choose(loads({0, 0, 9}), 5, 1, {}), 2u);
  const std::vector<Placement::Candidate> without_the_last = {{0, 0, 1}, {1, 0, 1}};
  EXPECT_EQ(pinned.choose(without_the_last, 5, 1, {}), 0u);  // the next one that takes requests
}

TEST(Placement, APrefixDrawsWithinTheBound) {
  PlacementConfig c;
  c.affinity_bound = 100;
  Placement p(c, 2, 4);
  const auto prefix = p.prefix_of(request(tokens(1, 13)));
  ASSERT_EQ(prefix.size(), 3u);
  p.placed(1, prefix);
  EXPECT_EQ(p.choose(loads({0, 100}), 1, 1, prefix), 1u);
  EXPECT_EQ(p.choose(loads({0, 101}), 1, 1, prefix), 0u);
  EXPECT_EQ(p.choose(loads({0, 100}), 1, 1, p.prefix_of(request(tokens(50, 13)))), 0u);           // another prompt
  EXPECT_EQ(p.choose(loads({0, 100}), 1, 1, p.prefix_of(request(tokens(1, 13), "pirate"))), 0u);  // another adapter's blocks
  EXPECT_EQ(p.affine(), 1u);
  p.forget(1);
  EXPECT_EQ(p.choose(loads({0, 100}), 1, 1, prefix), 0u);
}

TEST(Placement, TheLongestPrefixDraws) {
  Placement p({}, 2, 4);
  p.placed(0, p.prefix_of(request(tokens(1, 9))));
  p.placed(1, p.prefix_of(request(tokens(1, 17))));
  EXPECT_EQ(p.choose(loads({0, 50}), 1, 1, p.prefix_of(request(tokens(1, 30)))), 1u);
}

// Where the KV pool is full the request would wait, or push others out, however little there is to do.
TEST(Placement, PrefersARoomyKvPool) {
  PlacementConfig c;
  Placement p(c, 3, 4);
  std::vector<Placement::Candidate> all{{0, 90, 1, 100}, {1, 200, 1, 400}, {2, 300, 1, 0}};
  EXPECT_EQ(p.choose(all, 1, 10, {}), 0u);
  EXPECT_EQ(p.choose(all, 1, 11, {}), 1u);
  EXPECT_EQ(p.choose(all, 1, 201, {}), 2u);  // of that one nobody knows yet
  all[2].kv = 300;
  EXPECT_EQ(p.choose(all, 1, 201, {}), 0u);  // none has room: by the work alone
  // Nor does a cached prefix call it there.
  const auto prefix = p.prefix_of(request(tokens(1, 13)));
  p.placed(0, prefix);
  EXPECT_EQ(p.choose(all, 1, 10, prefix), 0u);
  EXPECT_EQ(p.choose(all, 1, 11, prefix), 1u);
}

TEST(Placement, RemembersSoManyBlocks) {
  PlacementConfig c;
  c.affinity_blocks = 3;
  Placement p(c, 2, 4);
  const auto old = p.prefix_of(request(tokens(1, 13))), young = p.prefix_of(request(tokens(60, 13)));
  p.placed(1, old);
  p.placed(1, young);
  EXPECT_EQ(p.choose(loads({0, 5}), 1, 1, old), 0u);
  EXPECT_EQ(p.choose(loads({0, 5}), 1, 1, young), 1u);
}

// What `n` replicas have to do when requests of very different sizes arrive and end, nine in ten of them with one of four prefixes.
std::array<std::uint64_t, 4> skewed(const PlacementConfig& config, std::uint64_t* affine = nullptr, std::uint64_t* worst = nullptr) {
  constexpr std::uint32_t kReplicas = 4;
  Placement p(config, kReplicas, 16);
  std::mt19937_64 random(7);
  std::array<std::uint64_t, 4> work{};
  std::vector<std::pair<std::uint32_t, std::uint64_t>> live;
  for (std::uint32_t i = 0; i < 4000; ++i) {
    const std::uint64_t tokens_out = random() % 20 == 0 ? 2000 + random() % 2000 : 10 + random() % 200;
    const Request q = request(tokens(static_cast<Token>(random() % 10 != 0 ? 1000 * (random() % 4) : random() % 100000), 200));
    const std::uint64_t cost = 200 + tokens_out;
    std::vector<Placement::Candidate> all;
    for (std::uint32_t k = 0; k < kReplicas; ++k) all.push_back({k, work[k], 1});
    const auto prefix = p.prefix_of(q);
    const std::uint32_t at = p.choose(all, i, cost, prefix);
    p.placed(at, prefix);
    work[at] += cost;
    live.emplace_back(at, cost);
    while (live.size() > 400) {  // any of them ends
      const std::size_t k = random() % live.size();
      work[live[k].first] -= live[k].second;
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(k));
    }
    if (worst != nullptr && live.size() == 400)
      *worst = std::max(*worst, *std::max_element(work.begin(), work.end()) - *std::min_element(work.begin(), work.end()));
  }
  if (affine != nullptr) *affine = p.affine();
  return work;
}

TEST(Placement, BalancesASkewedLoadWithinATenth) {
  PlacementConfig c;
  c.affinity_bound = 0;
  const auto work = skewed(c);
  const auto [least, most] = std::minmax_element(work.begin(), work.end());
  EXPECT_LE(static_cast<double>(*most - *least), 0.1 * static_cast<double>(*most)) << *least << " to " << *most << " tokens";
}

// imbalance: a prefix that many have does not pin its group to one replica.
TEST(Placement, ImbalanceAffinityPilesUpNoMoreThanItsBound) {
  PlacementConfig c;
  c.affinity_bound = 1024;
  c.affinity_blocks = 24;  // a cache holds two of the prefixes
  std::uint64_t affine = 0, worst = 0;
  const auto work = skewed(c, &affine, &worst);
  EXPECT_GT(affine, 100u);
  // The bound, one request, and what requests that end on the others leave behind.
  EXPECT_LE(worst, 1024u + 4200u + 8400u);
  const auto [least, most] = std::minmax_element(work.begin(), work.end());
  EXPECT_LE(static_cast<double>(*most - *least), 0.1 * static_cast<double>(*most) + 1024) << *least << " to " << *most << " tokens";
}

}  // namespace
}  // namespace troupe::actors
