#include "actors/link/frame.h"

#include <fmt/format.h>

namespace troupe::actors::link {

void FrameCutter::put(std::span<const std::uint8_t> bytes) {
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
  } else if (begin_ > buffer_.size() / 2) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<Frame>> FrameCutter::next() {
  const std::uint8_t* at = buffer_.data() + begin_;
  if (held() < kFrameHead) return std::optional<Frame>{};
  const std::size_t length = at[0] | at[1] << 8 | at[2] << 16 | std::size_t{at[3]} << 24;
  if (length == 0 || length - 1 > limit_(at[4])) {
    return Error{ErrorCode::bad_file, fmt::format("a frame of type {} and {} bytes was announced, which is not allowed", at[4], length)};
  }
  if (held() < 4 + length) return std::optional<Frame>{};
  begin_ += 4 + length;
  return std::optional<Frame>{Frame{at[4], {at + kFrameHead, length - 1}}};
}

}  // namespace troupe::actors::link
