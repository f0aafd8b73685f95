#include "tools/troupe/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace troupe::tools {
namespace {

// The bytes read, 0 at the end.
Result<std::size_t> read_some(int fd, char* to, std::size_t size, std::string_view name) {
  for (;;) {
    const ssize_t n = ::read(fd, to, size);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) return Error{ErrorCode::io_failed, fmt::format("{}: cannot read: {}", name, std::strerror(errno))};
  }
}

}  // namespace

Result<void> write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      const std::string name = fd == STDOUT_FILENO ? "stdout" : fmt::format("file descriptor {}", fd);
      if (errno == EPIPE) return Error{ErrorCode::io_failed, fmt::format("{}: the reader closed it before everything was written", name)};
      return Error{ErrorCode::io_failed, fmt::format("{}: cannot write: {}", name, std::strerror(errno))};
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return success();
}

Result<std::string> read_all(int fd, std::size_t limit) {
  std::string out;
  char chunk[1 << 16];
  for (;;) {
    TROUPE_TRY(auto n, read_some(fd, chunk, sizeof chunk, "stdin"));
    if (n == 0) return out;
    if (out.size() + n > limit) return Error{ErrorCode::bad_request, fmt::format("stdin: longer than {} bytes", limit)};
    out.append(chunk, n);
  }
}

Result<LineReader> LineReader::open(const std::string& path) {
  const int fd = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Error{ErrorCode::io_failed, fmt::format("{}: cannot open: {}", path, std::strerror(errno))};
  const int wake = ::eventfd(0, EFD_CLOEXEC);
  if (wake < 0) return Error{ErrorCode::io_failed, fmt::format("eventfd: {}", std::strerror(errno))};
  return LineReader(fd, wake, path == "-" ? "stdin" : path);
}

LineReader::LineReader(LineReader&& o) noexcept
    : fd_(std::exchange(o.fd_, -1)),
      wake_(std::exchange(o.wake_, -1)),
      name_(std::move(o.name_)),
      buffer_(std::move(o.buffer_)),
      at_(o.at_),
      number_(o.number_) {}

LineReader::~LineReader() {
  if (fd_ > STDIN_FILENO) ::close(fd_);
  if (wake_ >= 0) ::close(wake_);
}

void LineReader::interrupt() {
  const std::uint64_t one = 1;
  // An eventfd takes a small write always; if it did not, next() would only end later, with its input.
  [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
}

Result<bool> LineReader::next(std::string& line) {
  std::size_t searched = at_;
  for (;;) {
    const std::size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      line.assign(buffer_, at_, end - at_);
      at_ = end + 1;
      ++number_;
      return true;
    }
    buffer_.erase(0, at_);
    at_ = 0;
    searched = buffer_.size();
    if (searched > kMaxLine) {
      return Error{ErrorCode::bad_request, fmt::format("{}:{}: the line is longer than {} bytes", name_, number_ + 1, kMaxLine)};
    }
    struct pollfd ready[2] = {{fd_, POLLIN, 0}, {wake_, POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0 && errno != EINTR)
      return Error{ErrorCode::io_failed, fmt::format("{}: poll: {}", name_, std::strerror(errno))};
    if (ready[1].revents != 0) return false;
    if (ready[0].revents == 0) continue;
    char chunk[1 << 16];
    TROUPE_TRY(auto n, read_some(fd_, chunk, sizeof chunk, name_));
    if (n == 0) {
      if (buffer_.empty()) return false;
      line = std::move(buffer_);
      buffer_.clear();
      ++number_;
      return true;
    }
    buffer_.append(chunk, n);
  }
}

}  // namespace troupe::tools
