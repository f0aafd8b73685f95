// Writing to a file descriptor: whole, and with a closed pipe as an error instead of a signal (main ignores SIGPIPE).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "messages/error.h"

namespace troupe::tools {

// Blocks until everything is written. io_failed: says which stream, and that its reader went away if that is so.
Result<void> write_all(int fd, std::string_view bytes);

// Everything up to the end of the input. io_failed; bad_request beyond `limit` bytes.
Result<std::string> read_all(int fd, std::size_t limit);

// Reads lines without their ends, from a file or (path "-") from stdin. A last line without an end counts.
class LineReader {
 public:
  static constexpr std::size_t kMaxLine = std::size_t{64} << 20;
  static Result<LineReader> open(const std::string& path);
  LineReader(LineReader&& o) noexcept;
  LineReader& operator=(LineReader&&) = delete;
  ~LineReader();

  // False: the input has ended, or interrupt() was called. Errors: io_failed; bad_request for a line longer than kMaxLine (reading cannot
  // go on).
  Result<bool> next(std::string& line);
  // Ends a next() that waits, and every later one. Any thread.
  void interrupt();
  const std::string& name() const { return name_; }  // "stdin" for "-"
  std::uint64_t number() const { return number_; }   // of the last line, from 1

 private:
  LineReader(int fd, int wake, std::string name) : fd_(fd), wake_(wake), name_(std::move(name)) {}
  int fd_;
  int wake_;  // an eventfd
  std::string name_;
  std::string buffer_;
  std::size_t at_ = 0;  // of the first unread byte in buffer_
  std::uint64_t number_ = 0;
};

}  // namespace troupe::tools
