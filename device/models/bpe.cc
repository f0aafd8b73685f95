#include "device/models/bpe.h"

#include <algorithm>
#include <functional>

namespace troupe::device {

namespace {
constexpr std::uint32_t kEnd = 0xFFFFFFFFu;
}

Bpe::Bpe(const ByteIds& bytes, const std::vector<Merge>& merges) : bytes_(bytes) {
  merges_.reserve(merges.size());
  std::uint32_t rank = 0;
  for (const Merge& m : merges) merges_.try_emplace(pair(m.left, m.right), Ranked{rank++, m.merged});
}

std::optional<std::size_t> Bpe::encode(std::string_view word, Scratch& scratch, std::vector<Token>& out) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  const auto n = static_cast<std::uint32_t>(word.size());
  for (std::uint32_t i = 0; i < n; ++i) {
    const auto id = bytes_[static_cast<unsigned char>(word[i])];
    if (!id) return i;
    symbols.push_back({*id, i == 0 ? kEnd : i - 1, i + 1 == n ? kEnd : i + 1});
  }
  auto consider = [&](std::uint32_t left) {
    const std::uint32_t right = symbols[left].next;
    if (right == kEnd) return;
    const auto it = merges_.find(pair(symbols[left].id, symbols[right].id));
    if (it == merges_.end()) return;
    heap.push_back({it->second.rank, left, symbols[left].id, symbols[right].id});
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (std::uint32_t i = 0; i + 1 < n; ++i) consider(i);

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Scratch::Candidate c = heap.back();
    heap.pop_back();
    auto& left = symbols[c.at];
    // Stale: one of the two has been merged with something else since.
    if (left.next == c.at || left.next == kEnd || left.id != c.left || symbols[left.next].id != c.right) continue;
    const std::uint32_t dead = left.next;
    left.id = merges_.find(pair(c.left, c.right))->second.merged;
    left.next = symbols[dead].next;
    symbols[dead].next = dead;
    if (left.next != kEnd) symbols[left.next].previous = c.at;
    if (left.previous != kEnd) consider(left.previous);
    consider(c.at);
  }
  for (std::uint32_t i = n == 0 ? kEnd : 0; i != kEnd; i = symbols[i].next) out.push_back(symbols[i].id);
  return std::nullopt;
}

}  // namespace troupe::device
