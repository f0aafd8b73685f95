// The text of one request's output: bytes in, text that is final out. Bytes that may still become a stop string, and
// a character whose bytes are not all there, are held back. What comes out is valid UTF-8 (U+FFFD for bytes that are
// none), so that it may be sent as it is.
//
// No tokenizer: the bytes of a token come from ModelInfo's table. Owned by the scheduler's core.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::actors {

class TextStream {
 public:
  // Appends a token's bytes and moves what became final to `out`. True: one of `stops` is complete (the earliest
  // wins, then the longer); the text ends before it and the rest is dropped.
  bool push(std::string_view bytes, const std::vector<std::string>& stops, std::string& out);
  // No more bytes will come: everything that was held back becomes final.
  void flush(std::string& out);
  // Whether the bytes held back are the beginning of a stop string: the next token may complete it.
  bool may_complete() const { return stop_prefix_ > 0; }
  void clear();

 private:
  std::string held_;
  std::size_t stop_prefix_ = 0;  // how many of the last bytes of held_ begin a stop string
};

// Appends `bytes` to `out` as valid UTF-8, each byte that cannot be part of a character as U+FFFD. Returns how many
// bytes were used: without `final`, an incomplete character at the end is left.
std::size_t append_utf8(std::string_view bytes, bool final, std::string& out);

}  // namespace troupe::actors
