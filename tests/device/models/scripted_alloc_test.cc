// A step in steady state allocates nothing, on any thread (DESIGN §5.3).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/device/models/scripted_rig.h"

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

namespace troupe::device {
namespace {

TEST(ScriptedAlloc, AStepAllocatesNothing) {
  Rig rig({.vocab = 1000, .step_ns = 10'000, .log_steps = 100});
  RigStep step;
  step.deltas = {{0, 0, 0}, {1, 0, 1}, {1, 0, 1}};
  step.host(0, 0, {1, 2, 3}).logits_row = 0;
  step.host(1, 0, {4, 5, 6});
  const auto run = [&](std::uint64_t n) {
    step.ticket = {1, n};
    if (rig.run(step, static_cast<std::uint32_t>(n % 3)).has_error()) return false;
    rig.model->fed_step_settled(step.ticket);
    return true;
  };
  ASSERT_TRUE(run(1));
  const std::uint64_t before = allocations.load();
  ASSERT_GT(before, 0u) << "the counter counts";
  bool ok = true;
  for (std::uint64_t n = 2; n <= 200; ++n) ok = run(n) && ok;
  EXPECT_EQ(allocations.load(), before);
  EXPECT_TRUE(ok);
  rig.close();
}

}  // namespace
}  // namespace troupe::device
