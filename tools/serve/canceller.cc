#include "tools/serve/canceller.h"

#include <utility>

namespace troupe::serve {

Canceller::Canceller(Runtime& runtime) : runtime_(runtime), thread_([this] { run(); }) {}

Canceller::~Canceller() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void Canceller::cancel(std::uint64_t first, std::uint32_t n) {
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; i < n; ++i) asked_.push_back(first + i);
  changed_.notify_one();
}

void Canceller::run() {
  for (;;) {
    std::vector<std::uint64_t> clients;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !asked_.empty(); });
      if (asked_.empty()) return;
      clients = std::exchange(asked_, {});
    }
    for (const std::uint64_t client : clients) {
      runtime_.cancel(client);
      ++acknowledged_;
    }
  }
}

}  // namespace troupe::serve
