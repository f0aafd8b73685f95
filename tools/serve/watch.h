// Asks the runtime how it is, on a thread of its own: the question waits for the control thread, which a stuck runtime
// may never answer, and whoever wants to know must not be stuck with it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "actors/runtime.h"

namespace troupe::serve {

class RuntimeWatch {
 public:
  using Answer = std::function<void(const RuntimeMetrics&)>;

  explicit RuntimeWatch(const Runtime& runtime);
  ~RuntimeWatch();  // waits for a question that is under way; what was not answered never is

  // `answer` is called on the watch's thread, with figures that are not older than the call. Any thread; never waits.
  void ask(Answer answer);

 private:
  void run();

  const Runtime& runtime_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Answer> asked_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace troupe::serve
