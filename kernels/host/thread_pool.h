// Threads that share the rows of one kernel call. The caller works too; helpers that come late find the call closed,
// so a call never waits for a thread that has not begun. Helpers spin briefly between calls, then park.
//
// Each thread begins with a share of its own, of items that follow each other, and then takes from the others' what is
// left: cores whose caches are far apart seldom touch one line. Which thread does which item is left open: no result may
// depend on it (R1). Nothing is allocated per call.
// One call at a time, from one thread. The destructor joins.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace troupe::kernels {

class ThreadPool {
 public:
  explicit ThreadPool(unsigned threads);  // in all, the caller's included; 0 counts as 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned threads() const { return static_cast<unsigned>(helpers_.size()) + 1; }

  // f(item, thread) for every item < n; thread < threads() is unique among those that run at once.
  template <class F>
  void run(std::size_t n, F&& f) {
    if (helpers_.empty() || n <= 1) {
      for (std::size_t i = 0; i < n; ++i) f(i, 0u);
      return;
    }
    run_shared(
        n, [](void* context, std::size_t item, unsigned thread) { (*static_cast<std::remove_reference_t<F>*>(context))(item, thread); },
        &f);
  }

 private:
  using Call = void (*)(void* context, std::size_t item, unsigned thread);
  // state_: epoch << 17 | open << 16 | helpers at work
  static constexpr std::uint64_t kOpen = 1u << 16, kEpoch = 1u << 17, kCount = kOpen - 1;

  void run_shared(std::size_t n, Call call, void* context);
  void help(unsigned thread);
  void work(unsigned thread);

  std::vector<std::thread> helpers_;
  Call call_ = nullptr;
  void* context_ = nullptr;
  struct alignas(64) Share {
    std::atomic<std::size_t> next{0};
    std::size_t end = 0;  // written between calls only
  };
  std::vector<Share> shares_;  // by thread
  alignas(64) std::atomic<std::uint64_t> state_{0};
  alignas(64) std::atomic<std::uint32_t> wake_{0};
  std::atomic<std::uint32_t> parked_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace troupe::kernels
