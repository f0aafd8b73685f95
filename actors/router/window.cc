// Blocks behind a sliding window: position p reads p - window + 1 .. p, so what lies wholly before the first position that
// is read from the settled length on is of no use to its sequence any more. By settled length, never by launched length:
// a redo starts again at the settled one (R2). A block that was published stays in the prefix cache.
#include <algorithm>
#include <utility>

#include "actors/router/state.h"

namespace troupe::actors {

void RouterCore::State::reclaim(RouterSequence& s, std::uint32_t len) {
  if (model.window == 0) return;
  const std::uint32_t end = std::min(model.blocks_behind(len), s.settled_len / model.block_size);
  const bool fence = is_named(s);
  for (; s.behind < end; ++s.behind) {
    const BlockId block = std::exchange(s.table[s.behind], kNoBlock);
    (void)cache.drop(block, fence);
    if (fence) window_fences.push_back({s.named_in, s.stream, block});
    ++stats.behind_window;
    stats.behind_window_fenced += fence ? 1 : 0;
  }
}

void RouterCore::State::settle_window(std::uint64_t step, std::uint32_t stream) {
  std::erase_if(window_fences, [&](const WindowFence& f) {
    if (f.step > step || f.stream != stream) return false;
    (void)cache.settle(f.block);
    return true;
  });
}

}  // namespace troupe::actors
