#include "tests/fake_cuda/pinned.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

namespace fake_cuda {

thread_local bool on_stream_thread = false;

struct Pinned::Area {
  std::atomic<std::uintptr_t> base{0};  // of the host's view; 0 = no such area
  std::size_t mapped = 0;
  std::size_t bytes = 0;
  std::uintptr_t streams = 0;  // the base of the streams' view
  std::atomic<bool> freed{false};
  struct Page {
    std::atomic<std::uint32_t> in{0}, out{0};  // copies in flight into and out of it
  };
  std::unique_ptr<Page[]> pages;
};

namespace {

struct Touch {
  enum class Kind : std::uint8_t { after_free, before_copy_in, during_copy_out };
  Kind kind = Kind::after_free;
  bool write = false;
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

std::array<Pinned::Area, Pinned::kMostAreas> areas;
std::atomic<std::size_t> n_areas{0};
std::array<Touch, 64> touches;
std::atomic<std::size_t> n_touches{0};
struct sigaction previous;

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}
const std::size_t kPage = page_size();

bool is_write([[maybe_unused]] void* context) {
#if defined(__x86_64__)
  return (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  return false;
#endif
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const std::size_t n = n_areas.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < n; ++i) {
    Pinned::Area& area = areas[i];
    const std::uintptr_t base = area.base.load(std::memory_order_acquire);
    if (base == 0 || address < base || address >= base + area.mapped) continue;
    const std::size_t page = (address - base) / kPage;
    if (!on_stream_thread || area.freed) {
      const std::size_t at = n_touches.fetch_add(1);
      if (at < touches.size()) {
        const auto kind = area.freed                 ? Touch::Kind::after_free
                          : area.pages[page].in != 0 ? Touch::Kind::before_copy_in
                                                     : Touch::Kind::during_copy_out;
        touches[at] = {kind, is_write(context), address - base, area.bytes};
      }
    }
    ::mprotect(reinterpret_cast<void*>(base + page * kPage), kPage, PROT_READ | PROT_WRITE);
    return;
  }
  // Not ours: whoever was there before (a sanitizer), or the end.
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(signal, info, context);
  } else {
    ::sigaction(signal, &previous, nullptr);
  }
}

void watch_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    ::sigaction(SIGSEGV, &action, &previous);
  });
}

void protect(Pinned::Area& area, std::size_t page) {
  const int rights = area.freed                  ? PROT_NONE
                     : area.pages[page].in != 0  ? PROT_NONE
                     : area.pages[page].out != 0 ? PROT_READ
                                                 : PROT_READ | PROT_WRITE;
  ::mprotect(reinterpret_cast<void*>(area.base.load() + page * kPage), kPage, rights);
}

struct Pages {
  std::size_t first, last;  // last: one past
};
Pages pages_of(const Pinned::Area& area, const void* ptr, std::size_t bytes) {
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(ptr) - area.base.load();
  return {offset / kPage, (offset + bytes + kPage - 1) / kPage};
}

std::string sentence(const Touch& t) {
  const std::string where = fmt::format("byte {} of {} page-locked bytes", t.offset, t.bytes);
  switch (t.kind) {
    case Touch::Kind::after_free:
      return fmt::format("the host {} {} after cudaFreeHost", t.write ? "wrote" : "read", where);
    case Touch::Kind::before_copy_in:
      return fmt::format(
          "the host {} {} before an event or its stream said that what writes it is complete: a ring slot was read too early",
          t.write ? "wrote" : "read", where);
    case Touch::Kind::during_copy_out:
      return fmt::format(
          "the host wrote {} while a copy out of it, or a kernel that reads it, is queued: an upload slot was reused too early", where);
  }
  return where;
}

}  // namespace

void* Pinned::alloc(std::size_t bytes) {
  watch_faults();
  const std::size_t at = n_areas.load();
  if (at == areas.size() || bytes > std::size_t{1} << 40) return nullptr;
  const std::size_t mapped = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  const int file = ::memfd_create("page-locked", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  void* host = MAP_FAILED;
  void* streams = MAP_FAILED;
  if (::ftruncate(file, static_cast<off_t>(mapped)) == 0) {
    host = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    streams = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  ::close(file);
  if (host == MAP_FAILED || streams == MAP_FAILED) {
    if (host != MAP_FAILED) ::munmap(host, mapped);
    if (streams != MAP_FAILED) ::munmap(streams, mapped);
    return nullptr;
  }
  Area& area = areas[at];
  area.mapped = mapped;
  area.bytes = bytes;
  area.streams = reinterpret_cast<std::uintptr_t>(streams);
  area.freed = false;
  area.pages = std::make_unique<Area::Page[]>(mapped / kPage);
  area.base = reinterpret_cast<std::uintptr_t>(host);
  n_areas.store(at + 1, std::memory_order_release);
  std::fill_n(static_cast<unsigned char*>(host), mapped, static_cast<unsigned char>(0xCD));  // CUDA promises no zeroes
  return host;
}

Pinned::Area* Pinned::find(const void* ptr, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(ptr);
  for (std::size_t i = 0; i < n_areas.load(); ++i) {
    const std::uintptr_t base = areas[i].base.load(), end = base + std::max<std::size_t>(areas[i].bytes, 1);
    // Not from its end on: the next area may begin there.
    if (address >= base && address < end && address + bytes <= end) return &areas[i];
  }
  return nullptr;
}

bool Pinned::freed(const Area& area) { return area.freed; }
bool Pinned::in_flight(const Area& area) {
  for (std::size_t p = 0; p < area.mapped / kPage; ++p) {
    if (area.pages[p].in != 0 || area.pages[p].out != 0) return true;
  }
  return false;
}
bool Pinned::starts_at(const Area& area, const void* ptr) { return area.base == reinterpret_cast<std::uintptr_t>(ptr); }
std::size_t Pinned::bytes(const Area& area) { return area.bytes; }
void* Pinned::stream_view(const Area& area, const void* ptr) {
  return reinterpret_cast<void*>(area.streams + (reinterpret_cast<std::uintptr_t>(ptr) - area.base));
}

void Pinned::hold(Area& area, const void* ptr, std::size_t bytes, Access access) {
  const Pages pages = pages_of(area, ptr, bytes);
  for (std::size_t p = pages.first; p < pages.last; ++p) {
    ++(access == Access::copy_in ? area.pages[p].in : area.pages[p].out);
    protect(area, p);
  }
}

void Pinned::release(Area& area, const void* ptr, std::size_t bytes, Access access) {
  const Pages pages = pages_of(area, ptr, bytes);
  for (std::size_t p = pages.first; p < pages.last; ++p) {
    --(access == Access::copy_in ? area.pages[p].in : area.pages[p].out);
    protect(area, p);
  }
}

void Pinned::free(Area& area) {
  area.freed = true;
  for (std::size_t p = 0; p < area.mapped / kPage; ++p) protect(area, p);
}

std::size_t Pinned::alive() const {
  const std::size_t n = n_areas.load();
  return static_cast<std::size_t>(
      std::count_if(areas.begin(), areas.begin() + static_cast<std::ptrdiff_t>(n), [](const Area& a) { return !a.freed; }));
}

std::vector<std::string> Pinned::describe_alive() const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < n_areas.load(); ++i) {
    if (!areas[i].freed) out.push_back(fmt::format("{} page-locked bytes were never given back by cudaFreeHost", areas[i].bytes));
  }
  return out;
}

std::vector<std::string> Pinned::take_touches() {
  std::vector<std::string> out;
  const std::size_t n = n_touches.exchange(0);
  for (std::size_t i = 0; i < std::min(n, touches.size()); ++i) out.push_back(sentence(touches[i]));
  if (n > touches.size()) out.push_back(fmt::format("and {} more touches of page-locked memory", n - touches.size()));
  return out;
}

void Pinned::reset() {
  for (std::size_t i = 0; i < n_areas.load(); ++i) {
    Area& area = areas[i];
    ::munmap(reinterpret_cast<void*>(area.base.exchange(0)), area.mapped);
    ::munmap(reinterpret_cast<void*>(area.streams), area.mapped);
  }
  n_areas = 0;
  n_touches = 0;
}

}  // namespace fake_cuda
