// What a step costs in steady state, by count: messages (DESIGN §5.3: at most 8 whatever the batch) and heap
// allocations of the whole process, the runtime's and CAF's together.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <numeric>

#include "tests/actors/rig.h"

namespace {

std::atomic<std::uint64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = alignment <= alignof(std::max_align_t) ? std::malloc(bytes) : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
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

struct Mark {
  std::uint64_t messages = 0;
  std::uint64_t steps = 0;
  std::uint64_t rows = 0;
};

// Taken in callbacks of one client, so that between the marks nothing but steps happens. Allocations are counted apart
// for every kInterval of its tokens: something that is allocated per step shows in each, while a pool that grows once
// (because the machine let a thread lag behind) shows in one.
struct Window {
  static constexpr std::uint32_t kFrom = 50, kTo = 450, kInterval = 40;
  Runtime* runtime = nullptr;
  Mark from, to;
  std::array<std::uint64_t, (kTo - kFrom) / kInterval> made{};
  std::uint64_t last = 0;
  std::atomic<bool> ended{false};

  void take(const RequestEvent& event) {
    if (event.finish != nullptr) ended = true;
    if (event.token == nullptr || event.token->index < kFrom || event.token->index > kTo) return;
    const std::uint32_t passed = event.token->index - kFrom;
    if (passed % kInterval != 0) return;
    const std::uint64_t now = allocations;
    if (passed != 0) made[passed / kInterval - 1] = now - last;
    if (event.token->index == kFrom) read(from);
    if (event.token->index == kTo) read(to);
    last = allocations;
  }
  void read(Mark& mark) const {
    const RuntimeMetrics m = runtime->metrics();
    mark.messages = m.messages;
    mark.steps = m.scheduler.steps;
    mark.rows = m.scheduler.rows;
  }
};

void measure(std::uint32_t depth, std::uint32_t batch) {
  device::ScriptedOptions script;
  script.context = 512;
  script.kv_blocks = batch * 32;
  script.n_slots = batch;
  script.max_rows = batch;
  script.attention = false;
  script.step_ns = 50'000;
  RuntimeOptions options;
  options.depth = depth;
  options.max_batch = batch;
  test::Rig rig = test::make_rig(options, script);
  Window window;
  window.runtime = rig.runtime.get();
  std::atomic<std::uint64_t> tokens{0};
  for (std::uint64_t client = 2; client <= batch; ++client) {
    ASSERT_TRUE(rig.runtime->submit(test::make_request(client, 3, 500, script), [&](const RequestEvent& e) {
      if (e.token != nullptr) ++tokens;
    }));
  }
  ASSERT_TRUE(rig.runtime->submit(test::make_request(1, 3, 460, script), [&](const RequestEvent& e) { window.take(e); }));
  ASSERT_TRUE(rig.runtime->drain(std::chrono::seconds{120}));
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
  ASSERT_TRUE(window.ended);

  const std::uint64_t steps = window.to.steps - window.from.steps;
  const std::uint64_t messages = window.to.messages - window.from.messages;
  const std::uint64_t made = std::accumulate(window.made.begin(), window.made.end(), std::uint64_t{0});
  // The client got a token every step, and the marks are read while steps are under way.
  ASSERT_GE(steps, Window::kTo - Window::kFrom - 8);
  EXPECT_GE(window.to.rows - window.from.rows, (steps - 4) * batch);
  std::printf("depth %u, %u rows: %llu steps, %.2f messages a step, %.3f allocations a step (all of the process, CAF's included)\n", depth,
              batch, static_cast<unsigned long long>(steps), static_cast<double>(messages) / static_cast<double>(steps),
              static_cast<double>(made) / static_cast<double>(steps));
  EXPECT_LE(messages, 8 * steps + 8 * (depth + 1));
  EXPECT_EQ(*std::min_element(window.made.begin(), window.made.end()), 0u);
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
