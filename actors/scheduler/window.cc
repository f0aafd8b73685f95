// How many KV blocks a request needs: all up to its length, or with a sliding window those that it still reads. What lies
// behind the window of the settled length goes back (the router's reclaim()).
#include <algorithm>

#include "actors/scheduler/state.h"

namespace troupe::actors {

std::uint32_t SchedulerCore::State::blocks_until(std::uint32_t settled, std::uint32_t end) const {
  const std::uint32_t all = blocks_for(end, model.block_size) - model.blocks_behind(settled);
  if (model.window == 0) return all;
  // In flight at most depth steps of it, which read a window before them; neither end is at a block's.
  const std::uint64_t span = std::min<std::uint64_t>(end - settled, std::uint64_t{depth} * step_tokens) + model.window - 1;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(all, (span + model.block_size - 1) / model.block_size + 1));
}

// A chunk ends where the router wants to keep the state behind it.
// A chunk of a prompt may need more blocks than the whole pool has, where a smaller one fits after the blocks behind it
// went back. One token always, if nothing of it is in flight: if that does not fit, it never will, and the router says so.
std::uint32_t SchedulerCore::State::chunk_limit(const Live& r) const {
  for (const std::uint32_t cut : {r.cut_first, r.cut_second})
    if (cut > r.launched) return cut - r.launched;
  if (model.window == 0) return model.context_length;
  const std::uint64_t covered = (std::uint64_t{model.kv_blocks} + model.blocks_behind(r.settled)) * model.block_size;
  const std::uint64_t room = covered - std::min<std::uint64_t>(covered, r.launched);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(room, r.n_rows == 0 ? 1 : 0, model.context_length));
}

}  // namespace troupe::actors
