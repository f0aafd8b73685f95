#include "device/kv/block_pool.h"

#include <gtest/gtest.h>

namespace troupe::device {
namespace {

using Class = BlockPool::Class;

void expect_sum(const BlockPool& p) { EXPECT_EQ(p.free() + p.used() + p.cached() + p.fenced(), p.total()); }

TEST(BlockPool, TakesEveryBlockOnceAndThenSaysSo) {
  BlockPool pool(3);
  std::vector<bool> seen(3, false);
  for (int i = 0; i < 3; ++i) {
    const BlockId b = pool.take().value();
    EXPECT_FALSE(seen[b]);
    seen[b] = true;
    EXPECT_EQ(pool.class_of(b), Class::used);
    EXPECT_EQ(pool.references(b), 1u);
    expect_sum(pool);
  }
  const auto none = pool.take();
  ASSERT_TRUE(none.has_error());
  EXPECT_EQ(none.error().code, ErrorCode::kv_exhausted);
}

TEST(BlockPool, AFencedBlockIsNotFreeUntilItSettles) {
  BlockPool pool(1);
  const BlockId b = pool.take().value();
  ASSERT_TRUE(pool.drop(b, true));
  EXPECT_EQ(pool.class_of(b), Class::fenced);
  EXPECT_EQ(pool.free(), 0u);
  EXPECT_TRUE(pool.take().has_error());
  expect_sum(pool);
  ASSERT_TRUE(pool.settle(b));
  EXPECT_EQ(pool.free(), 1u);
  expect_sum(pool);
}

TEST(BlockPool, AnUnfencedDropFreesAtOnce) {
  BlockPool pool(2);
  const BlockId b = pool.take().value();
  ASSERT_TRUE(pool.drop(b, false));
  EXPECT_EQ(pool.free(), 2u);
  EXPECT_EQ(pool.take().value(), b) << "the most recently freed comes first";
}

TEST(BlockPool, ASecondFreeIsRefusedAndChangesNothing) {
  BlockPool pool(2);
  const BlockId b = pool.take().value();
  ASSERT_TRUE(pool.drop(b, false));
  EXPECT_EQ(pool.drop(b, false).error().code, ErrorCode::internal);
  EXPECT_EQ(pool.settle(b).error().code, ErrorCode::internal);
  EXPECT_EQ(pool.drop(7, false).error().code, ErrorCode::internal) << "no such block";
  EXPECT_EQ(pool.free(), 2u);
  expect_sum(pool);
}

}  // namespace
}  // namespace troupe::device
