#include "tools/bench/alloc_count.h"

#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<std::uint64_t> ours{0}, caf{0};

// Where CAF's library lies; found before main by the initialiser below, zero (nothing counts as CAF's) until then.
std::atomic<std::uintptr_t> caf_begin{0}, caf_end{0};

[[maybe_unused]] const bool found = [] {
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void*) {
        if (std::strstr(info->dlpi_name, "libcaf_core") == nullptr) return 0;
        std::uintptr_t end = 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          if (header.p_type == PT_LOAD && header.p_vaddr + header.p_memsz > end) end = header.p_vaddr + header.p_memsz;
        }
        caf_begin = info->dlpi_addr;
        caf_end = info->dlpi_addr + end;
        return 1;
      },
      nullptr);
  return true;
}();

void* allocate(std::size_t size, std::size_t alignment, const void* caller) {
  const auto at = reinterpret_cast<std::uintptr_t>(caller);
  const bool from_caf = at >= caf_begin.load(std::memory_order_relaxed) && at < caf_end.load(std::memory_order_relaxed);
  (from_caf ? caf : ours).fetch_add(1, std::memory_order_relaxed);
  if (size == 0) size = 1;
  void* p = alignment <= alignof(std::max_align_t) ? std::malloc(size)
                                                   : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size, 0, __builtin_return_address(0)); }
void* operator new[](std::size_t size) { return allocate(size, 0, __builtin_return_address(0)); }
void* operator new(std::size_t size, std::align_val_t a) {
  return allocate(size, static_cast<std::size_t>(a), __builtin_return_address(0));
}
void* operator new[](std::size_t size, std::align_val_t a) {
  return allocate(size, static_cast<std::size_t>(a), __builtin_return_address(0));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace troupe::tools {

AllocCount alloc_count() { return {ours.load(std::memory_order_relaxed), caf.load(std::memory_order_relaxed)}; }

}  // namespace troupe::tools
