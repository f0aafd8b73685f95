#include "device/kv/prefix_cache.h"

#include <gtest/gtest.h>

namespace troupe::device {
namespace {

using Class = BlockPool::Class;

// Sequences as the router keeps them, over a pool of 8 blocks of 2 positions.
struct Books {
  explicit Books(std::uint64_t hash_mask = ~std::uint64_t{0}) : cache(pool, 2, hash_mask) {}
  // Computes `tokens` from scratch and publishes its full blocks.
  std::vector<BlockId> run(const std::vector<Token>& tokens, AdapterRef adapter = {}) {
    std::vector<BlockId> table;
    PrefixCache::Ref last;
    for (std::uint32_t at = 0; at < tokens.size(); at += 2) {
      table.push_back(cache.take().value());
      if (at + 2 <= tokens.size()) last = cache.publish(table.back(), last, {tokens, {}}, at, adapter);
    }
    EXPECT_EQ(cache.check(), "");
    return table;
  }
  void release(const std::vector<BlockId>& table, bool fence = false) {
    for (auto b = table.rbegin(); b != table.rend(); ++b) ASSERT_TRUE(cache.drop(*b, fence));
    EXPECT_EQ(cache.check(), "");
  }
  std::vector<BlockId> hit(const std::vector<Token>& tokens, AdapterRef adapter = {}) {
    std::vector<BlockId> table;
    cache.acquire({tokens, {}}, adapter, table);
    EXPECT_EQ(cache.check(), "");
    return table;
  }
  BlockPool pool{8};
  PrefixCache cache;
};

TEST(PrefixCache, FindsTheLongestPrefixAndLeavesATokenToCompute) {
  Books b;
  const auto table = b.run({1, 2, 3, 4, 5});
  b.release(table);
  EXPECT_EQ(b.pool.cached(), 2u) << "the half block is not kept";
  EXPECT_EQ(b.hit({1, 2, 3, 4}).size(), 1u) << "(len - 1) / block: the last token has to be computed";
  EXPECT_EQ(b.hit({1, 2, 3, 4, 9}), (std::vector<BlockId>{table[0], table[1]}));
  EXPECT_EQ(b.hit({1, 2, 9, 9, 9}).size(), 1u);
  EXPECT_TRUE(b.hit({9, 2, 3, 4, 5}).empty());
  EXPECT_EQ(b.pool.references(table[0]), 3u);
}

TEST(PrefixCache, AnotherAdapterOrGenerationIsAnotherContent) {
  Books b;
  b.release(b.run({1, 2, 3}, {1, 1}));
  EXPECT_TRUE(b.hit({1, 2, 3}).empty());
  EXPECT_TRUE(b.hit({1, 2, 3}, {1, 2}).empty()) << "the adapter was loaded again";
  EXPECT_EQ(b.hit({1, 2, 3}, {1, 1}).size(), 1u);
}

TEST(PrefixCache, EqualHashesAreNotIdentity) {
  Books b(0);  // every hash is 0
  const auto x = b.run({1, 2, 3, 4, 5}), y = b.run({6, 7, 3, 4, 5});
  EXPECT_EQ(b.hit({1, 2, 3, 4, 5}), (std::vector<BlockId>{x[0], x[1]}));
  EXPECT_EQ(b.hit({6, 7, 3, 4, 5}), (std::vector<BlockId>{y[0], y[1]})) << "the same tokens after others";
  EXPECT_TRUE(b.hit({2, 1, 3}).empty());
  EXPECT_TRUE(b.hit({3, 4, 5}).empty()) << "the second block is nobody's first";
}

TEST(PrefixCache, ReclaimsTheLongestIdleAndWhatHangsOnIt) {
  Books b;
  const auto old = b.run({1, 2, 3, 4}), young = b.run({5, 6, 7, 8});
  b.release(old);
  b.release(young);
  EXPECT_EQ(b.pool.free(), 4u);
  EXPECT_EQ(b.cache.available(), 8u);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(b.cache.take());
  EXPECT_EQ(b.pool.cached(), 4u) << "nothing is reclaimed while blocks are free";
  EXPECT_EQ(b.cache.take().value(), old[1]) << "the last block first: those before it are of use without it";
  EXPECT_EQ(b.hit({1, 2, 3, 4, 9}), (std::vector<BlockId>{old[0]}));
  EXPECT_EQ(b.cache.take().value(), young[1]);
  EXPECT_EQ(b.cache.take().value(), young[0]);
  EXPECT_EQ(b.cache.take().error().code, ErrorCode::kv_exhausted) << "what is used is never reclaimed";
  EXPECT_EQ(b.cache.reclaimed(), 3u);
}

TEST(PrefixCache, AFencedBlockIsNotIdleUntilEveryFenceIsPassed) {
  Books b;
  const auto table = b.run({1, 2, 3});
  const auto shared = b.hit({1, 2, 9});
  ASSERT_EQ(shared.size(), 1u);
  b.release(table, true);
  EXPECT_EQ(b.pool.class_of(table[0]), Class::used) << "somebody else has it";
  EXPECT_EQ(b.pool.class_of(table[1]), Class::fenced);
  b.release(shared, true);
  EXPECT_EQ(b.pool.class_of(table[0]), Class::fenced);
  ASSERT_TRUE(b.cache.settle(table[0]));
  EXPECT_EQ(b.pool.class_of(table[0]), Class::fenced) << "the other's steps are still in flight";
  ASSERT_TRUE(b.cache.settle(table[0]));
  EXPECT_EQ(b.pool.class_of(table[0]), Class::cached);
  EXPECT_EQ(b.cache.check(), "");
}

TEST(PrefixCache, ASecondOwnerOfTheSameContentKeepsItsOwnBlock) {
  Books b;
  const auto x = b.run({1, 2, 3, 4}), y = b.run({1, 2, 5, 6});
  EXPECT_FALSE(b.pool.published(y[0])) << "x's stands for it";
  EXPECT_TRUE(b.pool.published(y[1])) << "hangs on x's";
  b.release(y);
  EXPECT_EQ(b.hit({1, 2, 5, 6, 7}), (std::vector<BlockId>{x[0], y[1]}));
}

TEST(PrefixCache, ABlockIsNotHungOnOneThatWasReclaimed) {
  BlockPool pool(2);
  PrefixCache cache(pool, 2);
  const std::vector<Token> tokens{1, 2, 3, 4};
  const BlockId first = cache.take().value();
  const auto ref = cache.publish(first, {}, {tokens, {}}, 0, {});
  ASSERT_TRUE(cache.drop(first, false));
  ASSERT_TRUE(cache.take());
  const BlockId again = cache.take().value();
  ASSERT_EQ(again, first);
  EXPECT_EQ(cache.publish(again, ref, {tokens, {}}, 2, {}).block, PrefixCache::kNone);
  EXPECT_FALSE(pool.published(again));
  EXPECT_EQ(cache.check(), "");
}

TEST(PrefixCache, ForgettingEverythingFreesWhatIsIdle) {
  Books b;
  b.release(b.run({1, 2, 3, 4}));
  const auto used = b.run({5, 6});
  b.cache.clear();
  EXPECT_EQ(b.pool.free(), 7u);
  EXPECT_EQ(b.cache.check(), "");
  b.release(used);
  EXPECT_EQ(b.pool.free(), 8u);
}

TEST(PrefixCache, AHitEndsAtASnapshot) {
  Books b;
  std::vector<BlockId> table;
  std::vector<PrefixCache::Ref> refs;
  const std::vector<Token> tokens{1, 2, 3, 4, 5, 6, 7};
  for (std::uint32_t at = 0; at + 2 <= tokens.size(); at += 2) {
    table.push_back(b.cache.take().value());
    refs.push_back(b.cache.publish(table.back(), refs.empty() ? PrefixCache::Ref{} : refs.back(), {tokens, {}}, at, {}));
  }
  const auto hit = [&](const std::vector<Token>& of, AdapterRef adapter = {}) {
    std::vector<BlockId> found;
    const auto h = b.cache.acquire_with_snapshot({of, {}}, adapter, found);
    for (const BlockId block : found) EXPECT_TRUE(b.cache.drop(block, false));
    EXPECT_EQ(b.cache.check(), "");
    return std::tuple(found.size(), h.snapshot, h.known);
  };
  constexpr std::uint32_t kNone = PrefixCache::kNone;
  EXPECT_EQ(hit(tokens), (std::tuple(0u, kNone, 3u)));
  EXPECT_TRUE(b.cache.attach(refs[1], 40));
  EXPECT_FALSE(b.cache.attach(refs[1], 41)) << "it has one";
  EXPECT_EQ(hit(tokens), (std::tuple(2u, 40u, 3u)));
  EXPECT_EQ(hit({1, 2, 3, 4}), (std::tuple(0u, kNone, 1u))) << "a token is left to compute, and the snapshot lies behind it";
  EXPECT_EQ(hit({1, 2, 3, 4, 9, 9}), (std::tuple(2u, 40u, 2u)));
  EXPECT_EQ(hit(tokens, {1, 1}), (std::tuple(0u, kNone, 0u))) << "another adapter";
  b.cache.detach(table[1]);
  EXPECT_EQ(hit(tokens), (std::tuple(0u, kNone, 3u)));
  EXPECT_TRUE(b.cache.attach(refs[2], 42));
  b.release(table);
  while (b.pool.free() > 0) (void)b.cache.take();
  EXPECT_TRUE(b.cache.lost().empty());
  (void)b.cache.take();  // the block at the end is idle longest
  EXPECT_EQ(b.cache.lost(), std::vector<std::uint32_t>{42});
  EXPECT_FALSE(b.cache.attach(refs[2], 43)) << "the block holds something else";
}

}  // namespace
}  // namespace troupe::device
