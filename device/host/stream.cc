#include "device/host/stream.h"

#include <bit>
#include <cstring>

#include "device/host/futex.h"

namespace troupe::device {
namespace {

// Whether count `a` has reached count `b`; both wrap.
bool reached(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) >= 0; }

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void HostEvent::complete(std::uint32_t count, ErrorCode code) {
  status.store(code, std::memory_order_relaxed);
  completed.store(count, std::memory_order_seq_cst);
  if (waiters.load(std::memory_order_seq_cst) != 0) unpark_all(completed);
}

void HostEvent::wait(std::uint32_t count) {
  if (reached(completed.load(std::memory_order_acquire), count)) return;
  waiters.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const std::uint32_t now = completed.load(std::memory_order_seq_cst);
    if (reached(now, count)) break;
    park(completed, now);
  }
  waiters.fetch_sub(1, std::memory_order_relaxed);
}

HostStream::HostStream(std::uint32_t capacity, std::chrono::nanoseconds spin, const std::atomic<ErrorCode>& lost)
    : capacity_(capacity),
      spin_(spin),
      lost_(lost),
      ring_(std::bit_ceil(capacity + 1)),
      mask_(static_cast<std::uint32_t>(ring_.size()) - 1) {
  thread_ = std::thread([this] { work(); });
}

HostStream::~HostStream() {
  put(StreamOp{});
  thread_.join();
}

bool HostStream::full() const { return tail_.load(std::memory_order_relaxed) - head_.load(std::memory_order_acquire) >= capacity_; }

bool HostStream::idle() const { return tail_.load(std::memory_order_relaxed) == head_.load(std::memory_order_acquire); }

bool HostStream::push(const StreamOp& op) {
  if (full()) return false;
  put(op);
  return true;
}

void HostStream::put(const StreamOp& op) {
  const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
  ring_[tail & mask_] = op;
  tail_.store(tail + 1, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst)) unpark_all(tail_);
}

void HostStream::wait_for_work(std::uint32_t head) {
  if (spin_.count() > 0) {
    const auto until = std::chrono::steady_clock::now() + spin_;
    while (std::chrono::steady_clock::now() < until) {
      if (tail_.load(std::memory_order_acquire) != head) return;
      pause_cpu();
    }
  }
  parked_.store(true, std::memory_order_seq_cst);
  while (tail_.load(std::memory_order_seq_cst) == head) park(tail_, head);
  parked_.store(false, std::memory_order_relaxed);
}

void HostStream::work() {
  ErrorCode error = ErrorCode::none;  // of the functions since the last event
  for (std::uint32_t head = 0;; ++head) {
    if (tail_.load(std::memory_order_acquire) == head) wait_for_work(head);
    const StreamOp op = ring_[head & mask_];
    const ErrorCode lost = lost_.load(std::memory_order_acquire);
    switch (op.kind) {
      case StreamOp::Kind::stop:
        return;
      case StreamOp::Kind::record:
        head_.store(head + 1, std::memory_order_release);
        op.event->complete(op.count, lost != ErrorCode::none ? lost : error);
        error = ErrorCode::none;
        continue;
      case StreamOp::Kind::notify: {
        head_.store(head + 1, std::memory_order_release);
        const ErrorCode status = op.event->status.load(std::memory_order_relaxed);
        op.event->notifies.fetch_sub(1, std::memory_order_release);
        op.notify.call(op.notify.context, op.handle, status);
        continue;
      }
      case StreamOp::Kind::wait:
        op.event->wait(op.count);
        break;
      case StreamOp::Kind::copy:
        if (lost == ErrorCode::none) std::memcpy(op.dst, op.src, op.bytes);
        break;
      case StreamOp::Kind::function:
        if (lost == ErrorCode::none) {
          const ErrorCode code = op.function.run(op.function.context);
          if (error == ErrorCode::none) error = code;
        }
        break;
    }
    head_.store(head + 1, std::memory_order_release);
  }
}

}  // namespace troupe::device
