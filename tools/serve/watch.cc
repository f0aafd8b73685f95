#include "tools/serve/watch.h"

#include <utility>

namespace troupe::serve {

RuntimeWatch::RuntimeWatch(const Runtime& runtime) : runtime_(runtime), thread_([this] { run(); }) {}

RuntimeWatch::~RuntimeWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void RuntimeWatch::ask(Answer answer) {
  const std::lock_guard lock(mutex_);
  asked_.push_back(std::move(answer));
  changed_.notify_one();
}

void RuntimeWatch::run() {
  std::vector<Answer> answers;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !asked_.empty(); });
      if (stop_) return;
      answers = std::exchange(asked_, {});
    }
    const RuntimeMetrics metrics = runtime_.metrics();
    for (const Answer& answer : answers) answer(metrics);
  }
}

}  // namespace troupe::serve
