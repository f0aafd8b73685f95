// Finds special tokens in text: the leftmost, and of those that begin at one place the longest.
//
// Filled once, then immutable: any thread may look.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "messages/ids.h"

namespace troupe::device {

class SpecialTokens {
 public:
  struct Found {
    std::size_t at = 0;
    std::size_t size = 0;
    Token id = 0;
  };
  // A control token stands for itself only where the caller trusts the text; a user-defined one always.
  enum class Kind : std::uint8_t { control, user_defined };

  // `text` must not be empty; of two tokens with one text the first counts.
  void add(std::string_view text, Token id, Kind kind);
  // The next one from `from` on. O(size of text times the longest special token), in practice a pass over the bytes.
  std::optional<Found> find(std::string_view text, std::size_t from, bool control_too) const;

 private:
  struct Node {
    std::optional<Token> id;
    Kind kind = Kind::control;
  };
  static std::uint64_t edge(std::uint32_t node, char c) { return std::uint64_t{node} << 8 | static_cast<unsigned char>(c); }

  std::vector<Node> nodes_{1};  // a trie over bytes; 0 is the root
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;
  bool begins_[256] = {};
};

}  // namespace troupe::device
