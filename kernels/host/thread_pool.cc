#include "kernels/host/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace troupe::kernels {

namespace {
constexpr int kSpins = 4000;  // some tens of microseconds: longer than the gaps inside a step
inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}
}  // namespace

ThreadPool::ThreadPool(unsigned threads) : shares_(threads == 0 ? 1 : threads) {
  for (unsigned t = 1; t < threads; ++t) helpers_.emplace_back([this, t] { help(t); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_seq_cst);
  wake_.fetch_add(1, std::memory_order_seq_cst);
  wake_.notify_all();
  for (auto& h : helpers_) h.join();
}

void ThreadPool::work(unsigned thread) {
  for (std::size_t k = 0; k < shares_.size(); ++k) {
    Share& share = shares_[(thread + k) % shares_.size()];
    for (;;) {
      const std::size_t item = share.next.fetch_add(1, std::memory_order_relaxed);
      if (item >= share.end) break;
      call_(context_, item, thread);
    }
  }
}

void ThreadPool::run_shared(std::size_t n, Call call, void* context) {
  call_ = call;
  context_ = context;
  for (std::size_t t = 0; t < shares_.size(); ++t) {
    shares_[t].next.store(n * t / shares_.size(), std::memory_order_relaxed);
    shares_[t].end = n * (t + 1) / shares_.size();
  }
  const std::uint64_t epoch = (state_.load(std::memory_order_relaxed) & ~(kEpoch - 1)) + kEpoch;
  state_.store(epoch | kOpen, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) > 0) {
    wake_.fetch_add(1, std::memory_order_seq_cst);
    wake_.notify_all();
  }
  work(0);
  std::uint64_t s = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (int spins = 0; (s & kCount) != 0; s = state_.load(std::memory_order_acquire)) {
    pause();
    if (++spins > kSpins) std::this_thread::yield();  // the helper may have lost its core
  }
}

void ThreadPool::help(unsigned thread) {
  std::uint64_t last = 0;
  int spins = 0;
  for (;;) {
    std::uint64_t s = state_.load(std::memory_order_seq_cst);
    if ((s & kOpen) != 0 && s / kEpoch != last) {
      if (!state_.compare_exchange_weak(s, s + 1, std::memory_order_acq_rel)) continue;
      last = s / kEpoch;
      work(thread);
      state_.fetch_sub(1, std::memory_order_acq_rel);
      spins = 0;
      continue;
    }
    if (stop_.load(std::memory_order_seq_cst)) return;
    if (++spins < kSpins) {
      pause();
      continue;
    }
    spins = 0;
    const std::uint32_t ticket = wake_.load(std::memory_order_seq_cst);
    parked_.fetch_add(1, std::memory_order_seq_cst);
    s = state_.load(std::memory_order_seq_cst);
    if (((s & kOpen) == 0 || s / kEpoch == last) && !stop_.load(std::memory_order_seq_cst)) wake_.wait(ticket);
    parked_.fetch_sub(1, std::memory_order_seq_cst);
  }
}

}  // namespace troupe::kernels
