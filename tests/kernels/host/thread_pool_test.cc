#include "kernels/host/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>

namespace troupe::kernels {
namespace {

TEST(ThreadPool, EveryItemRunsOnceInEveryCall) {
  for (unsigned threads : {0u, 1u, 2u, 4u}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), std::max(threads, 1u));
    std::vector<int> count(100, 0);  // no atomics: TSan finds two threads on one item, or a call that returned early
    for (int round = 0; round < 500; ++round) {
      const std::size_t n = static_cast<std::size_t>(round % 101);
      pool.run(n, [&](std::size_t i, unsigned thread) {
        ASSERT_LT(thread, pool.threads());
        ++count[i];
      });
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(count[i], 1) << i;
      std::fill(count.begin(), count.end(), 0);
    }
  }
}

TEST(ThreadPool, ThreadNumbersAreUniqueAmongThoseAtWork) {
  ThreadPool pool(3);
  std::vector<std::size_t> scratch(3, 0);
  std::size_t total = 0;
  for (int round = 0; round < 200; ++round) pool.run(50, [&](std::size_t, unsigned thread) { ++scratch[thread]; });
  for (std::size_t s : scratch) total += s;
  EXPECT_EQ(total, 200u * 50u);
}

TEST(ThreadPool, WorksAfterItsHelpersParked) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> n{0};
    pool.run(1000, [&](std::size_t, unsigned) { n.fetch_add(1, std::memory_order_relaxed); });
    EXPECT_EQ(n.load(), 1000);
  }
}

}  // namespace
}  // namespace troupe::kernels
