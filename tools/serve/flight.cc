#include "tools/serve/flight.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

namespace troupe::serve {
namespace {

Error failed(std::string_view what, const std::string& path) {
  return Error{ErrorCode::io_failed, fmt::format("{} {}: {}", what, path, std::strerror(errno))};
}

}  // namespace

Result<std::shared_ptr<Recording>> Recording::take(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("cannot read the recording", path);
  ::unlink(path.c_str());
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    const Error error = failed("cannot read the recording", path);
    ::close(fd);
    return error;
  }
  return std::shared_ptr<Recording>(new Recording(fd, static_cast<std::uint64_t>(status.st_size)));
}

Recording::~Recording() { ::close(fd_); }

Result<std::string> Recording::next(std::size_t most) {
  std::string out(static_cast<std::size_t>(std::min<std::uint64_t>(most, size_ - at_)), '\0');
  for (std::size_t have = 0; have < out.size();) {
    const ssize_t n = ::pread(fd_, out.data() + have, out.size() - have, static_cast<off_t>(at_ + have));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error{ErrorCode::io_failed, "the recording cannot be read back"};
    have += static_cast<std::size_t>(n);
  }
  at_ += out.size();
  return out;
}

FlightDumper::FlightDumper(const Runtime& runtime) : runtime_(runtime), thread_([this] { run(); }) {}

FlightDumper::~FlightDumper() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void FlightDumper::dump(std::string part, Done done) {
  {
    const std::lock_guard lock(mutex_);
    if (!asked_ && in_use_.expired()) {
      asked_ = std::move(done);
      part_ = std::move(part);
      changed_.notify_one();
      return;
    }
  }
  done(ApiError{429, "rate_limit_error", "a recording is being fetched already; try again when that is done", "", "overloaded"});
}

void FlightDumper::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || asked_; });
    if (stop_) return;
    const std::string part = part_;
    lock.unlock();
    auto written = write(part);
    lock.lock();
    const Done done = std::exchange(asked_, nullptr);
    if (written) in_use_ = written.value();
    lock.unlock();
    done(std::move(written));
    lock.lock();
  }
}

ApiResult<std::shared_ptr<Recording>> FlightDumper::write(const std::string& part) const {
  std::error_code none;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(none);
  if (none) return from_runtime(Error{ErrorCode::io_failed, "there is no folder for temporary files; TMPDIR names one"});
  std::string path = (folder / "troupe-flight-XXXXXX").string();
  const int fd = ::mkstemp(path.data());
  if (fd < 0) return from_runtime(failed("cannot make a temporary file, such as", path));
  ::close(fd);
  auto taken = [&]() -> Result<std::shared_ptr<Recording>> {
    TROUPE_TRY(runtime_.dump_trace(path, part.empty() ? "front" : part));
    return Recording::take(path);
  }();
  if (taken) return std::move(taken).value();
  ::unlink(path.c_str());
  if (taken.error().code == ErrorCode::bad_request) return not_found(taken.error().what, "recorder_off");
  return from_runtime(taken.error());
}

}  // namespace troupe::serve
