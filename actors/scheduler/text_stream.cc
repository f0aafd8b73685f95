#include "actors/scheduler/text_stream.h"

#include <algorithm>

namespace troupe::actors {

namespace {

// The length of the UTF-8 character at the start of `s` (RFC 3629: no overlong forms, no surrogates): > 0 = complete,
// 0 = incomplete so far, -1 = its first byte begins no character.
int utf8_character(std::string_view s) {
  const auto b = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char c = b(0);
  if (c < 0x80) return 1;
  std::size_t n = 0;
  unsigned char low = 0x80, high = 0xBF;  // bounds of the second byte
  if (c >= 0xC2 && c <= 0xDF) {
    n = 2;
  } else if (c >= 0xE0 && c <= 0xEF) {
    n = 3;
    if (c == 0xE0) low = 0xA0;
    if (c == 0xED) high = 0x9F;
  } else if (c >= 0xF0 && c <= 0xF4) {
    n = 4;
    if (c == 0xF0) low = 0x90;
    if (c == 0xF4) high = 0x8F;
  } else {
    return -1;
  }
  for (std::size_t i = 1; i < n; ++i) {
    if (i >= s.size()) return 0;
    if (b(i) < low || b(i) > high) return -1;
    low = 0x80, high = 0xBF;
  }
  return static_cast<int>(n);
}

}  // namespace

std::size_t append_utf8(std::string_view bytes, bool final, std::string& out) {
  if (std::all_of(bytes.begin(), bytes.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
    out += bytes;
    return bytes.size();
  }
  std::size_t used = 0;
  while (used < bytes.size()) {
    const int n = utf8_character(bytes.substr(used));
    if (n > 0) {
      out.append(bytes, used, static_cast<std::size_t>(n));
      used += static_cast<std::size_t>(n);
    } else if (n == 0 && !final) {
      break;
    } else {
      out += "\xEF\xBF\xBD";
      ++used;
    }
  }
  return used;
}

bool TextStream::push(std::string_view bytes, const std::vector<std::string>& stops, std::string& out) {
  if (stops.empty() && held_.empty()) {  // nearly every token of nearly every request
    stop_prefix_ = 0;
    held_ = bytes.substr(append_utf8(bytes, false, out));
    return false;
  }
  held_ += bytes;
  std::size_t at = std::string::npos, length = 0;
  for (const std::string& stop : stops) {
    if (stop.empty()) continue;
    const std::size_t found = held_.find(stop);
    if (found < at || (found == at && found != std::string::npos && stop.size() > length)) at = found, length = stop.size();
  }
  if (at != std::string::npos) {
    held_.resize(at);
    flush(out);
    return true;
  }
  stop_prefix_ = 0;
  for (const std::string& stop : stops) {
    for (std::size_t n = std::min(stop.empty() ? 0 : stop.size() - 1, held_.size()); n > stop_prefix_; --n)
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n)) {
        stop_prefix_ = n;
        break;
      }
  }
  held_.erase(0, append_utf8(std::string_view(held_).substr(0, held_.size() - stop_prefix_), false, out));
  return false;
}

void TextStream::flush(std::string& out) {
  append_utf8(held_, true, out);
  clear();
}

void TextStream::clear() {
  held_.clear();
  stop_prefix_ = 0;
}

}  // namespace troupe::actors
