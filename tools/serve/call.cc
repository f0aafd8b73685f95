#include "tools/serve/call.h"

#include <utility>

namespace troupe::serve {
namespace {

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

Piece to_piece(std::uint32_t choice, const RequestEvent& event) {
  Piece piece;
  piece.choice = choice;
  piece.text = event.text;
  if (event.token != nullptr) {
    piece.token = event.token->id;
    piece.logprob = event.token->logprob;
    if (event.best != nullptr) piece.best.assign(event.best, event.best + event.token->best_size);
  }
  if (event.finish != nullptr) piece.finish = *event.finish;
  return piece;
}

}  // namespace

Call::Call(std::uint64_t client_base, std::uint32_t choices, std::size_t limit, std::shared_ptr<CallObserver> observer,
           std::function<void()> wake)
    : client_base_(client_base),
      choices_(choices),
      limit_(limit),
      observer_(std::move(observer)),
      timing_(choices),
      wake_(std::move(wake)),
      open_(choices) {}

RequestCallback Call::callback(std::uint32_t choice) {
  return [self = shared_from_this(), choice](const RequestEvent& event) { self->on_event(choice, event); };
}

void Call::on_event(std::uint32_t choice, const RequestEvent& event) {
  const auto now = Clock::now();
  Timing& timing = timing_[choice];
  if (event.token != nullptr) {
    observer_->on_token(seconds(now - start_), timing.tokens == 0 ? std::nullopt : std::optional(seconds(now - timing.last)));
    ++timing.tokens;
    timing.last = now;
  }
  if (event.finish != nullptr) observer_->on_finish(*event.finish, timing.tokens, seconds(now - start_), abandoned_);
  if (keep(choice, event)) observer_->on_done(client_base_);
}

// True: this was the last end.
bool Call::keep(std::uint32_t choice, const RequestEvent& event) {
  const std::lock_guard lock(mutex_);
  if (event.finish != nullptr) --open_;
  if (!wake_) return open_ == 0;
  bool tell = !woken_;
  if (!overflow_) {
    Piece piece = to_piece(choice, event);
    bytes_ += sizeof(Piece) + piece.text.size() + piece.best.size() * sizeof(TokenLogprob);
    if (limit_ != 0 && bytes_ > limit_) {
      overflow_ = tell = true;
      pieces_.clear();
    } else {
      pieces_.push_back(std::move(piece));
    }
  }
  if (tell) {
    woken_ = true;
    wake_();
  }
  return open_ == 0;
}

void Call::not_submitted(std::uint32_t choice) {
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    open_ -= choices_ - choice;
    last = open_ == 0;
  }
  if (last) observer_->on_done(client_base_);
}

std::vector<Piece> Call::take() {
  const std::lock_guard lock(mutex_);
  woken_ = false;
  bytes_ = 0;
  return std::exchange(pieces_, {});
}

bool Call::overflowed() const {
  const std::lock_guard lock(mutex_);
  return overflow_;
}

void Call::abandon() {
  abandoned_ = true;
  const std::lock_guard lock(mutex_);
  wake_ = nullptr;
  pieces_.clear();
}

bool Call::done() const {
  const std::lock_guard lock(mutex_);
  return open_ == 0;
}

}  // namespace troupe::serve
