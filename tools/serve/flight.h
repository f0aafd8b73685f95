// /debug/trace: the flight recorder's last messages as a file of no name, which is gone when the last who reads it is.
//
// Invariants
//   - Written by a thread of its own: a runtime that is stuck may hold every worker, and that is when it is asked for.
//   - One recording at a time is being written or sent (R11): each is as large as the recorder's memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "actors/runtime.h"
#include "tools/serve/api_error.h"

namespace troupe::serve {

// One reader, one thread at a time.
class Recording {
 public:
  // io_failed. The file at `path` loses its name.
  static Result<std::shared_ptr<Recording>> take(const std::string& path);
  ~Recording();

  std::uint64_t size() const { return size_; }
  bool at_end() const { return at_ == size_; }
  // The next bytes, `most` at most. io_failed.
  Result<std::string> next(std::size_t most);

 private:
  Recording(int fd, std::uint64_t size) : fd_(fd), size_(size) {}
  const int fd_;
  const std::uint64_t size_;
  std::uint64_t at_ = 0;
};

class FlightDumper {
 public:
  using Done = std::function<void(ApiResult<std::shared_ptr<Recording>>)>;

  explicit FlightDumper(const Runtime& runtime);
  ~FlightDumper();  // waits for a recording that is being written

  // `part`: of the recording of several replicas (Runtime::dump_trace); empty: the whole, or the front's. `done` is called
  // once, on any thread, also at once. Errors: 429 while an earlier recording is in use; 404: the recorder is off, or there is
  // no such part; 500: no room in the folder for temporary files. Any thread; never waits.
  void dump(std::string part, Done done);

 private:
  void run();
  ApiResult<std::shared_ptr<Recording>> write(const std::string& part) const;

  const Runtime& runtime_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Done asked_;                       // and not answered
  std::string part_;                 // of that
  std::weak_ptr<Recording> in_use_;  // the last one
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace troupe::serve
