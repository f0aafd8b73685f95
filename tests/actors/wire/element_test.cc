#include "actors/wire/element.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "messages/protocol.h"

namespace troupe::actors {
namespace {

TEST(BlockPool, ReusesWhatComesBack) {
  BlockPool pool;
  void* a = pool.take();
  void* b = pool.take();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.made(), 2u);
  BlockPool::give_back(a);
  BlockPool::give_back(b);
  for (int i = 0; i < 100; ++i) BlockPool::give_back(pool.take());
  EXPECT_EQ(pool.made(), 2u);
}

TEST(BlockPool, OtherThreadsGiveBack) {
  BlockPool pool;
  for (int round = 0; round < 50; ++round) {
    std::vector<void*> out;
    for (int i = 0; i < 8; ++i) out.push_back(pool.take());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&out, t] {
        BlockPool::give_back(out[2 * t]);
        BlockPool::give_back(out[2 * t + 1]);
      });
    }
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(pool.made(), 8u);
}

// Leaks and uses after free are the address sanitizer's to find.
TEST(BlockPool, BlocksOutliveTheirPool) {
  std::vector<void*> out;
  {
    BlockPool pool;
    for (int i = 0; i < 3; ++i) out.push_back(pool.take());
    BlockPool::give_back(pool.take());
  }
  for (void* block : out) BlockPool::give_back(block);
}

TEST(PooledElement, HoldsItsMessageAndReturnsToThePool) {
  BlockPool pool;
  for (int i = 0; i < 3; ++i) {
    Ended message;
    message.requests = {{7, 1}, {8, 2}};
    caf::mailbox_element_ptr element = PooledElement<Ended>::make(pool, std::move(message));
    ASSERT_TRUE(element->content().match_elements<Ended>());
    EXPECT_EQ(element->content().get_as<Ended>(0).requests.size(), 2u);
    EXPECT_FALSE(element->mid.is_request());
    const caf::message copy = element->copy_content_to_message();
    EXPECT_EQ(copy.get_as<Ended>(0).requests[1].id.client, 8u);
    const caf::message moved = element->move_content_to_message();
    EXPECT_EQ(moved.get_as<Ended>(0).requests[0].id.client, 7u);
  }
  EXPECT_EQ(pool.made(), 1u);
}

}  // namespace
}  // namespace troupe::actors
