// The outermost form of what crosses a link: a frame is its length (4 bytes, little-endian, of what follows), a byte that
// says what it holds, and that. The stream of bytes is cut into frames here; what a frame holds is codec.h's.
//
// A length past what its type may have, or 0, ends the connection before a byte of the frame is kept. Memory grows with the bytes that
// came, never with those that were announced.
//
// Of one connection, and its thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "messages/error.h"

namespace troupe::actors::link {

inline constexpr std::size_t kFrameHead = 5;  // length and type

struct Frame {
  std::uint8_t type = 0;
  std::span<const std::uint8_t> payload;
};

// The most bytes after the head that a frame of the type may have.
using FrameLimit = std::size_t (*)(std::uint8_t type);

class FrameCutter {
 public:
  explicit FrameCutter(FrameLimit limit) : limit_(limit) {}

  void put(std::span<const std::uint8_t> bytes);
  // The next whole frame, valid until put(); none: more bytes have to come. bad_file: this is no stream of frames, or one of
  // them is longer than the limit; from then on it stays so.
  Result<std::optional<Frame>> next();

  std::size_t held() const { return buffer_.size() - begin_; }  // bytes that are not cut yet

 private:
  FrameLimit limit_;
  std::vector<std::uint8_t> buffer_;
  std::size_t begin_ = 0;
};

}  // namespace troupe::actors::link
