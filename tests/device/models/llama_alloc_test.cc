// A step in steady state allocates nothing, on any thread (DESIGN §5.3).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/device/models/llama_rig.h"

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

TEST(LlamaAlloc, AStepAllocatesNothing) {
  for (const bool exact : {false, true}) {
    LlamaOptions o;
    o.exact = exact;
    o.threads = 2;
    o.max_loras = 1;
    LlamaRig rig("tests/golden/tiny-llama/tiny-llama.Q4_1.gguf", o);
    ASSERT_TRUE(rig.model().load_adapter(1, "tests/golden/tiny-llama/adapters/all-r4"));
    ASSERT_TRUE(rig.model().show_adapter(1));
    const std::vector<RigRow> rows{{.slot = 0, .position = 0, .ids = std::vector<Token>(40, 5), .adapter = 1},
                                   {.slot = 1, .position = 0, .ids = {7}}};
    const auto step = [&] {
      auto ring = rig.launch(rows);
      return ring && rig.synchronize(ring.value());
    };
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(step());  // each ring slot once
    const std::uint64_t before = allocations.load();
    ASSERT_GT(before, 0u) << "the counter counts";
    bool ok = true;
    for (int i = 0; i < 200; ++i) ok = step() && ok;
    EXPECT_EQ(allocations.load(), before) << (exact ? "exact" : "fast");
    EXPECT_TRUE(ok);
  }
}

}  // namespace
}  // namespace troupe::device
