#include "messages/shared.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <vector>

namespace {
std::atomic<std::uint64_t> allocations{0};
}

void* operator new(std::size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(n != 0 ? n : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace troupe {
namespace {

struct Payload {
  std::vector<int> values;
  void clear() { values.clear(); }
};

Shared<Payload> filled(Pool<Payload>& pool, int n) {
  Draft<Payload> draft = pool.draft();
  for (int i = 0; i < n; ++i) draft->values.push_back(i);
  return std::move(draft).freeze();
}

TEST(Shared, EmptyIsFalse) {
  Shared<Payload> x;
  EXPECT_FALSE(x);
  EXPECT_EQ(x.get(), nullptr);
  Shared<Payload> y = x;
  Shared<Payload> z = std::move(x);
  EXPECT_FALSE(y);
  EXPECT_FALSE(z);
  z = Shared<Payload>::of({{1}});
  z = y;
  EXPECT_FALSE(z);
}

TEST(Shared, CopiesShareOnePayload) {
  auto x = Shared<Payload>::of({{1, 2}});
  Shared<Payload> y = x;
  EXPECT_EQ(x.get(), y.get());
  Shared<Payload> z = std::move(x);
  EXPECT_FALSE(x);
  EXPECT_EQ(z.get(), y.get());
  Shared<Payload>& same = z;
  z = same;
  EXPECT_EQ(z->values, (std::vector<int>{1, 2}));
  z = {};
  EXPECT_EQ(y->values.size(), 2u);
}

TEST(Pool, APayloadComesBackClearedWithItsCapacity) {
  Pool<Payload> pool;
  const Payload* first = nullptr;
  {
    const Shared<Payload> x = filled(pool, 100);
    first = x.get();
    const Shared<Payload> y = x;
    EXPECT_EQ(y->values.size(), 100u);
  }
  Draft<Payload> draft = pool.draft();
  EXPECT_EQ(&*draft, first);
  EXPECT_TRUE(draft->values.empty());
  EXPECT_GE(draft->values.capacity(), 100u);
  EXPECT_EQ(pool.made(), 1u);
}

TEST(Pool, ALiveReferenceKeepsThePayload) {
  Pool<Payload> pool;
  const Shared<Payload> x = filled(pool, 3);
  const Shared<Payload> y = filled(pool, 4);
  EXPECT_NE(x.get(), y.get());
  EXPECT_EQ(pool.made(), 2u);
  EXPECT_EQ(x->values.size(), 3u);
}

TEST(Pool, ADraftThatIsDroppedComesBackToo) {
  Pool<Payload> pool;
  for (int i = 0; i < 10; ++i) {
    Draft<Payload> draft = pool.draft();
    draft->values.push_back(i);
    Draft<Payload> moved = std::move(draft);
    EXPECT_EQ(moved->values.size(), 1u);
  }
  EXPECT_EQ(pool.made(), 1u);
}

TEST(Pool, APayloadOutlivesItsPool) {
  auto pool = std::make_unique<Pool<Payload>>();
  Shared<Payload> back = filled(*pool, 1);
  Shared<Payload> x = filled(*pool, 5);
  back = {};
  pool.reset();
  EXPECT_EQ(x->values.size(), 5u);
  x = {};
}

TEST(Pool, SteadyStateAllocatesNothing) {
  Pool<Payload> pool;
  std::array<Shared<Payload>, 4> in_flight;
  for (int i = 0; i < 8; ++i) in_flight[static_cast<std::size_t>(i) % 4] = filled(pool, 50);
  const std::uint64_t before = allocations.load();
  ASSERT_GT(before, 0u) << "the counter counts";
  for (int i = 0; i < 1000; ++i) in_flight[static_cast<std::size_t>(i) % 4] = filled(pool, 50);
  EXPECT_EQ(allocations.load(), before);
  EXPECT_EQ(pool.made(), 5u);
}

// One thread fills, others read and drop the last reference: what TSan watches.
TEST(Pool, ReferencesAreDroppedOnAnyThread) {
  constexpr int kRounds = 20000;
  constexpr std::size_t kReaders = 3;
  struct Box {
    std::mutex mutex;
    std::deque<std::optional<Shared<Payload>>> queue;
  };
  std::array<Box, kReaders> boxes;
  std::array<std::uint64_t, kReaders> sums{};
  std::uint64_t expected = 0;
  {
    Pool<Payload> pool;
    std::vector<std::thread> readers;
    for (std::size_t r = 0; r < kReaders; ++r) {
      readers.emplace_back([&, r] {
        for (;;) {
          std::optional<Shared<Payload>> x;
          {
            const std::lock_guard lock(boxes[r].mutex);
            if (!boxes[r].queue.empty()) {
              x = std::move(boxes[r].queue.front());
              boxes[r].queue.pop_front();
              if (!x) return;
            }
          }
          if (!x) {
            std::this_thread::yield();
            continue;
          }
          for (const int v : (*x)->values) sums[r] += static_cast<std::uint64_t>(v);
        }
      });
    }
    for (int i = 0; i < kRounds; ++i) {
      const int n = 1 + i % 7;
      const Shared<Payload> x = filled(pool, n);
      expected += static_cast<std::uint64_t>(n * (n - 1) / 2) * kReaders;
      for (Box& box : boxes) {
        const std::lock_guard lock(box.mutex);
        box.queue.emplace_back(x);
      }
    }
    for (Box& box : boxes) {
      const std::lock_guard lock(box.mutex);
      box.queue.emplace_back(std::nullopt);
    }
    for (std::thread& reader : readers) reader.join();
    EXPECT_LE(pool.made(), static_cast<std::size_t>(kRounds));
    // Everything came back: a round of its own needs no new object.
    const std::size_t made = pool.made();
    std::vector<Draft<Payload>> all;
    for (std::size_t i = 0; i < made; ++i) all.push_back(pool.draft());
    EXPECT_EQ(pool.made(), made);
  }
  EXPECT_EQ(sums[0] + sums[1] + sums[2], expected);
}

}  // namespace
}  // namespace troupe
