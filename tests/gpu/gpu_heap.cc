// Page-locked memory for everything that `new` makes, so that what a kernel test keeps in vectors is device memory: a GPU reads
// and writes page-locked memory under its host address. Linked into the kernels' test program only.
//
// From the tests' start on memory comes from one area, in powers of two with a free list each; before, and without a GPU, from
// malloc. Around each piece lies a pattern: where a kernel wrote past the end (or before the begin) the program ends with a sentence.
// Threads: any.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

namespace {

constexpr std::size_t kArea = std::size_t{512} << 20;
constexpr std::size_t kBefore = 64;  // of a piece: its size, and pattern
constexpr std::size_t kBehind = 32;
constexpr unsigned char kPattern = 0xa5;

std::mutex mutex;
unsigned char *area = nullptr, *next = nullptr;
struct Free {
  Free* next;
};
Free* free_lists[64];

std::size_t class_of(std::size_t bytes) { return std::bit_ceil(bytes + kBefore + kBehind); }

void* take(std::size_t bytes) {
  const std::size_t size = class_of(bytes);
  Free*& list = free_lists[std::countr_zero(size)];
  unsigned char* piece = nullptr;
  {
    const std::lock_guard lock(mutex);
    if (list != nullptr) {
      piece = reinterpret_cast<unsigned char*>(list);
      list = list->next;
    } else if (static_cast<std::size_t>(area + kArea - next) >= size) {
      piece = next;
      next += size;
    } else {
      throw std::bad_alloc();
    }
  }
  std::memcpy(piece, &bytes, sizeof bytes);
  std::memset(piece + sizeof bytes, kPattern, kBefore - sizeof bytes);
  std::memset(piece + kBefore + bytes, kPattern, kBehind);
  return piece + kBefore;
}

bool is_pattern(const unsigned char* p, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if (p[i] != kPattern) return false;
  }
  return true;
}

void give(void* p) {
  auto* const piece = static_cast<unsigned char*>(p) - kBefore;
  std::size_t bytes = 0;
  std::memcpy(&bytes, piece, sizeof bytes);
  if (!is_pattern(piece + sizeof bytes, kBefore - sizeof bytes) || bytes > kArea || !is_pattern(piece + kBefore + bytes, kBehind)) {
    std::fprintf(stderr, "something wrote outside of its %zu bytes at %p\n", bytes, p);
    std::abort();
  }
  const std::size_t size = class_of(bytes);
  const std::lock_guard lock(mutex);
  free_lists[std::countr_zero(size)] = new (piece) Free{free_lists[std::countr_zero(size)]};
}

bool is_ours(const void* p) { return area != nullptr && p >= area && p < area + kArea; }

class Heap final : public testing::Environment {
  void SetUp() override {
    void* memory = nullptr;
    if (cudaSetDevice(0) != cudaSuccess || cudaHostAlloc(&memory, kArea, cudaHostAllocPortable) != cudaSuccess) {
      (void)cudaGetLastError();
      return;
    }
    next = static_cast<unsigned char*>(memory);
    area = next;
  }
};

[[maybe_unused]] const testing::Environment* const heap = testing::AddGlobalTestEnvironment(new Heap);

}  // namespace

void* operator new(std::size_t bytes) {
  if (area != nullptr) return take(bytes);
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes); p != nullptr) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  if (p == nullptr) return;
  if (is_ours(p)) return give(p);
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
