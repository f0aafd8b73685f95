// One API call's requests, between the runtime's delivery thread, which only hands over, and the I/O thread, which
// writes to the client.
//
// Invariants
//   - What waits for a client is bounded: past `limit` bytes of a streamed answer the call overflows, once, and keeps
//     nothing more. The owner then cancels its requests.
//   - Whatever becomes of the client, a call lives until each of its requests has had its terminal event: the callbacks
//     hold it. So nothing is forgotten before the runtime has acknowledged a cancel.
//   - `wake` is called on the delivery thread: once when there is something to take(), and once on overflow.
//
// Threads: callbacks on the delivery thread, the rest by any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/runtime.h"

namespace troupe::serve {

// A token, or the end, of one of a call's choices.
struct Piece {
  std::uint32_t choice = 0;
  std::string text;  // that became final with it
  std::optional<Token> token;
  float logprob = 0;  // NaN: not asked for
  std::vector<TokenLogprob> best;
  std::optional<Finish> finish;
};

// What a call tells whoever counts; on the delivery thread. Durations are seconds.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  virtual void on_token(double since_submit, std::optional<double> since_last) = 0;  // since_last: none for the first of a choice
  virtual void on_finish(const Finish& finish, std::uint32_t tokens, double since_submit, bool abandoned) = 0;
  virtual void on_done(std::uint64_t call) = 0;  // every request has ended
};

class Call : public std::enable_shared_from_this<Call> {
 public:
  // `client_base` + choice is the runtime's client number of a choice. limit 0: none.
  Call(std::uint64_t client_base, std::uint32_t choices, std::size_t limit, std::shared_ptr<CallObserver> observer,
       std::function<void()> wake);

  RequestCallback callback(std::uint32_t choice);
  // Choices from `choice` on were not accepted by the runtime, and will not end.
  void not_submitted(std::uint32_t choice);

  std::vector<Piece> take();
  bool overflowed() const;

  // The client is gone: nothing more is kept for it, and `wake` is not called again.
  void abandon();
  bool abandoned() const { return abandoned_; }
  std::uint64_t client_base() const { return client_base_; }
  std::uint32_t choices() const { return choices_; }
  bool done() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Timing {
    std::uint32_t tokens = 0;
    Clock::time_point last;
  };
  void on_event(std::uint32_t choice, const RequestEvent& event);
  bool keep(std::uint32_t choice, const RequestEvent& event);

  const std::uint64_t client_base_;
  const std::uint32_t choices_;
  const std::size_t limit_;
  const std::shared_ptr<CallObserver> observer_;
  const Clock::time_point start_ = Clock::now();
  std::vector<Timing> timing_;  // of each choice; the delivery thread's
  std::atomic<bool> abandoned_{false};

  mutable std::mutex mutex_;
  std::function<void()> wake_;
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;
  std::uint32_t open_;  // choices without their end
  bool overflow_ = false;
  bool woken_ = false;
};

}  // namespace troupe::serve
