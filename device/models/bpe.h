// Byte-pair encoding over ids: the pair of neighbours with the lowest rank is merged first, the leftmost of equals, until
// no neighbours have a merge.
//
// Immutable after creation: any thread may encode, with a scratch of its own.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "messages/ids.h"

namespace troupe::device {

class Bpe {
 public:
  struct Merge {
    Token left = 0;
    Token right = 0;
    Token merged = 0;
  };
  using ByteIds = std::array<std::optional<Token>, 256>;  // the token of each single byte

  // Merges in order of rank; of two with the same pair the first counts.
  Bpe(const ByteIds& bytes, const std::vector<Merge>& merges);

  // Buffers that are kept from word to word.
  struct Scratch {
    struct Symbol {
      Token id = 0;
      std::uint32_t previous = 0;
      std::uint32_t next = 0;  // a merged symbol's right half is dead: its next is itself
    };
    struct Candidate {
      std::uint32_t rank = 0;
      std::uint32_t at = 0;  // the left symbol
      Token left = 0;        // as they were when the candidate was found
      Token right = 0;
      bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the ids of `word` to `out`. Answers the offset of a byte that has no token, if there is one; nothing is
  // appended then. O(n log n) in the word's length, which must be below 2^32 - 1.
  std::optional<std::size_t> encode(std::string_view word, Scratch& scratch, std::vector<Token>& out) const;

 private:
  struct Ranked {
    std::uint32_t rank = 0;
    Token merged = 0;
  };
  struct Mix {
    std::size_t operator()(std::uint64_t x) const {
      x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
      x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
      return x ^ (x >> 31);
    }
  };
  static std::uint64_t pair(Token left, Token right) { return std::uint64_t{left} << 32 | right; }

  ByteIds bytes_;
  std::unordered_map<std::uint64_t, Ranked, Mix> merges_;
};

}  // namespace troupe::device
