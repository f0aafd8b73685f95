// What a step costs in steady state, by count: messages (DESIGN §5.3: at most 8 whatever the batch) and heap
// allocations of the whole process, the runtime's and CAF's together.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <new>

#include "tests/actors/rig.h"

namespace {

std::atomic<std::uint64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = alignment <= alignof(std::max_align_t) ? std::malloc(bytes)
                                                   : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(std::size_t n) { return counted(n, 1); }
void* operator new[](std::size_t n) { return counted(n, 1); }
void* operator new(std::size_t n, std::align_val_t a) { return counted(n, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return counted(n, static_cast<std::size_t>(a)); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace troupe {
namespace {

constexpr std::uint32_t kTokens = 2000;  // of each request: long enough for the pools to have grown

// Allocations between marks that a callback of one client sets, so that between two marks nothing but steps happens.
// A pool that grows because the machine let the delivery thread or the recorder lag shows in some intervals; what is allocated per step
// would show in each. An interval counts if the thread kept up: about as many steps as tokens.
struct Window {
  static constexpr std::uint32_t kFrom = 50, kTo = 1950, kInterval = 40;
  Runtime* runtime = nullptr;
  std::uint64_t last_made = 0, last_steps = 0;
  std::uint64_t intervals = 0, steps = 0, made = 0, least = ~std::uint64_t{0};
  std::promise<void> ended;

  void take(const RequestEvent& event) {
    if (event.finish != nullptr) ended.set_value();
    if (event.token == nullptr || event.token->index < kFrom || event.token->index > kTo) return;
    const std::uint32_t passed = event.token->index - kFrom;
    if (passed % kInterval != 0) return;
    const std::uint64_t now = allocations;
    const std::uint64_t step = runtime->metrics().scheduler.steps;
    if (passed != 0 && step - last_steps >= kInterval / 2) {
      ++intervals;
      steps += step - last_steps;
      made += now - last_made;
      least = std::min(least, now - last_made);
    }
    last_steps = step;
    last_made = allocations;
  }
};

void measure(std::uint32_t depth, std::uint32_t batch) {
  device::ScriptedOptions script;
  script.context = 2560;
  script.kv_blocks = batch * 160;
  script.n_slots = batch;
  script.max_rows = batch;
  script.attention = false;
  script.step_ns = 100'000;
  RuntimeOptions options;
  options.depth = depth;
  options.max_batch = batch;
  test::Rig rig = test::make_rig(options, script);
  Window window;
  window.runtime = rig.runtime.get();
  std::future<void> ended = window.ended.get_future();
  for (std::uint64_t client = 2; client <= batch; ++client) {
    ASSERT_TRUE(rig.runtime->submit(test::make_request(client, 3, kTokens, script), [](const RequestEvent&) {}));
  }
  ASSERT_TRUE(rig.runtime->submit(test::make_request(1, 3, kTokens, script), [&](const RequestEvent& e) { window.take(e); }));
  ended.wait();
  ASSERT_TRUE(rig.runtime->drain(std::chrono::seconds{120}));
  const RuntimeMetrics m = rig.runtime->metrics();
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;

  // Over the whole run. A request adds Admit, Open, Opened, Ended and its reply; those that end with the last step have no launch to
  // go with for their commit and their release, which are an Apply and an Applied each.
  EXPECT_LE(m.messages, 8 * m.scheduler.steps + 9 * std::uint64_t{batch} + 16);
  EXPECT_GE(m.scheduler.steps, kTokens);
  EXPECT_EQ(m.scheduler.tokens, std::uint64_t{kTokens} * batch);
  const auto per = [](std::uint64_t x, std::uint64_t n) { return n == 0 ? 0.0 : static_cast<double>(x) / static_cast<double>(n); };
  std::printf(
      "depth %u, %u rows: %llu steps, %.2f messages a step; %.3f allocations a step over %llu steps (of the whole process, CAF's "
      "included)\n",
      depth, batch, static_cast<unsigned long long>(m.scheduler.steps), per(m.messages, m.scheduler.steps), per(window.made, window.steps),
      static_cast<unsigned long long>(window.steps));
  if (window.intervals == 0) GTEST_SKIP() << "the machine is too busy: the delivery thread never kept up with the steps";
  EXPECT_EQ(window.least, 0u);
}

// The count would see them: asking the runtime costs CAF several.
TEST(HotPath, AllocationsAreCounted) {
  test::Rig rig = test::make_rig({}, {});
  const std::uint64_t before = allocations;
  (void)rig.runtime->facts();
  EXPECT_GT(allocations, before + 2);
}

TEST(HotPath, AtMostEightMessagesAndNoAllocationAStepAtDepth1) { measure(1, 64); }
TEST(HotPath, AtMostEightMessagesAndNoAllocationAStepAtDepth2) { measure(2, 64); }
TEST(HotPath, TheCountDoesNotGrowWithTheBatch) { measure(2, 1); }

}  // namespace
}  // namespace troupe
