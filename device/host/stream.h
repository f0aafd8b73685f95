// A stream of the host driver: a thread that works off a bounded FIFO; and the events that it completes.
//
// Invariants
//   - one thread pushes (the stream actor's, R12), the stream's own thread takes; the push takes no lock and allocates
//     nothing, and fails at once when the FIFO is full;
//   - what a record or a notify announces, the queue has already let go of: who learns of an event's completion may
//     find the stream empty and destroy both;
//   - an error of a host function is handed to the next event recorded behind it, and to that one only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "device/driver.h"

namespace troupe::device {

// Counts instead of a flag, so that a wait names the very record it waits for, also after the slot was reused.
struct HostEvent {
  std::atomic<std::uint32_t> generation{0};        // odd: alive; a handle carries it
  std::atomic<std::uint32_t> recorded{0};          // never falls
  std::atomic<std::uint32_t> completed{0};         // of those recorded; pending = fewer than recorded
  std::atomic<std::uint32_t> notifies{0};          // asked for and not yet called
  std::atomic<std::uint32_t> waiters{0};           // threads parked on `completed`
  std::atomic<ErrorCode> status{ErrorCode::none};  // of the last completion
  std::atomic<Stream> stream{0};                   // where it was last recorded

  bool pending() const { return completed.load(std::memory_order_acquire) != recorded.load(std::memory_order_relaxed); }
  void complete(std::uint32_t count, ErrorCode code);
  // Returns once `completed` has reached `count`.
  void wait(std::uint32_t count);
};

struct StreamOp {
  enum class Kind : std::uint8_t { record, notify, wait, copy, function, stop };
  Kind kind = Kind::stop;
  HostEvent* event = nullptr;  // record, notify, wait
  std::uint32_t count = 0;     // which record of the event
  Event handle = 0;            // notify
  void* dst = nullptr;         // copy
  const void* src = nullptr;
  std::size_t bytes = 0;
  HostFunction function{};
  Notify notify{};
};

class HostStream {
 public:
  // `lost`: the driver's; once it is set, copies and functions are skipped and events complete with it.
  HostStream(std::uint32_t capacity, std::chrono::nanoseconds spin, const std::atomic<ErrorCode>& lost);
  // Works off what is queued, then ends the thread.
  ~HostStream();
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  bool full() const;
  bool push(const StreamOp& op);  // false: full
  bool idle() const;
  bool on_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  void put(const StreamOp& op);
  void work();
  void wait_for_work(std::uint32_t head);

  const std::uint32_t capacity_;
  const std::chrono::nanoseconds spin_;
  const std::atomic<ErrorCode>& lost_;
  std::vector<StreamOp> ring_;  // a power of two, at least one more than the capacity: a stop always fits
  const std::uint32_t mask_;
  alignas(64) std::atomic<std::uint32_t> tail_{0};  // pushed, ever; wraps
  alignas(64) std::atomic<std::uint32_t> head_{0};  // worked off, ever; wraps
  std::atomic<bool> parked_{false};
  std::thread thread_;
};

}  // namespace troupe::device
