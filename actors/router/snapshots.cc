// Snapshots: settled versions of recurrent state that are kept, so that the prefix cache serves models with recurrent layers. A
// version is kept by taking it out of its sequence's ring and putting another one in: nothing is copied. Kept are (SsmSnapshotSave)
// the state at the last full block of what a sequence was opened with, at a branch point (where the cache knew more blocks than it
// had a snapshot for), and (SsmCheckpoint), of what was generated since, the newest one at the end of a block.
#include <utility>

#include "actors/router/state.h"

namespace troupe::actors {

namespace {
constexpr std::uint32_t kNone = RouterSequence::kNoSlot;
}

// A free version, or the snapshot that was used longest ago among those that nobody reads.
std::optional<std::uint32_t> RouterCore::State::take_version() {
  reap();  // one that went with its block is nobody's to give up
  const bool early = config.fault == RouterFault::evict_in_use;
  if (free_states.empty()) {
    std::uint32_t oldest = kNone;
    for (std::uint32_t v = 0; v < kept.size(); ++v)
      if (kept[v].block != kNoBlock && (kept[v].pins == 0 || early) && (oldest == kNone || kept[v].used < kept[oldest].used)) oldest = v;
    if (oldest == kNone) return std::nullopt;
    cache.detach(std::exchange(kept[oldest].block, kNoBlock));
    ++stats.snapshots_given_up;
    if (kept[oldest].pins != 0) return oldest;
    --idle_snapshots;
    return oldest;
  }
  const std::uint32_t v = free_states.back();
  free_states.pop_back();
  return v;
}

void RouterCore::State::pin(std::uint32_t version) {
  Kept& k = kept[version];
  if (k.pins++ == 0 && k.block != kNoBlock) --idle_snapshots;
  k.used = ++uses;
}

void RouterCore::State::unpin(std::uint32_t version) {
  Kept& k = kept[version];
  if (--k.pins != 0) return;
  if (k.block != kNoBlock)
    ++idle_snapshots;
  else
    free_states.push_back(version);
}

// Of a version that is pinned.
bool RouterCore::State::make_snapshot(std::uint32_t version, device::PrefixCache::Ref block) {
  if (kept[version].block != kNoBlock || !cache.attach(block, version)) return false;
  kept[version].block = block.block;
  kept[version].used = ++uses;
  ++stats.snapshots;
  return true;
}

// Blocks that were reclaimed took their snapshots along.
void RouterCore::State::reap() {
  for (const std::uint32_t v : cache.lost()) {
    ++stats.snapshots_given_up;
    kept[v].block = kNoBlock;
    if (kept[v].pins != 0) continue;
    --idle_snapshots;
    free_states.push_back(v);
  }
  cache.lost().clear();
}

DeviceError RouterCore::State::apply_ssm(RouterSequence& s, const Effect& effect) {
  const auto bad = [&](std::string why) {
    return device_error(DeviceError::Phase::effect, ErrorCode::bad_plan, label(effect) + ": " + std::move(why));
  };
  if (const auto* e = std::get_if<SsmSnapshotRestore>(&effect)) {
    if (!s.stateless || e->snapshot != s.base) return bad("the sequence was not opened behind it, or has begun");
    s.stateless = false;
    return {};
  }
  const bool save = std::holds_alternative<SsmSnapshotSave>(effect);
  if (s.settled_len == 0 || s.settled_len % model.block_size != 0)
    return bad("settled to " + std::to_string(s.settled_len) + ", inside a block");
  if (save && s.params && s.settled_len != s.cut_first && s.settled_len != s.cut_second)
    return bad("nobody asked for the state at " + std::to_string(s.settled_len));
  keep_state(s, save);
  return {};
}

// Only settled states are kept, and those only whose blocks are in the prefix cache, or will be when the sequence leaves. A state that
// is kept already is not kept again.
void RouterCore::State::keep_state(RouterSequence& s, bool as_snapshot) {
  if (!s.params || s.base != kNone || s.settled_state == 0) return;
  if (as_snapshot ? s.published * model.block_size != s.settled_len : s.settled_len <= s.opened_len) return;
  std::optional<std::uint32_t> other;
  if (!as_snapshot && s.checkpoint != kNone && kept[s.checkpoint].pins == 1)
    other = s.checkpoint, --kept[s.checkpoint].pins, s.checkpoint = kNone;
  else
    other = take_version();
  if (!other) return;
  const bool newest = config.fault == RouterFault::snapshot_unsettled && as_snapshot;
  const std::uint32_t v = newest ? s.launched_state : s.settled_state;
  const std::uint32_t end = state_end(s, v);
  std::uint32_t& place = s.states[v % s.states.size()];
  const std::uint32_t version = std::exchange(place, *other);
  pin(version);
  s.base = version;
  s.base_at = v;
  s.base_end = end;
  if (as_snapshot) {
    device::PrefixCache::Ref block = s.last_published;
    if (config.fault == RouterFault::shift_snapshot && s.published > 1) block = cache.parent(block);
    (void)make_snapshot(version, block);
    return;
  }
  if (s.checkpoint != kNone) unpin(s.checkpoint);
  pin(version);
  s.checkpoint = version;
  s.checkpoint_end = s.settled_len;
}

// The sequence leaves, and what it generated has been published.
void RouterCore::State::keep_checkpoint(RouterSequence& s) {
  if (s.checkpoint == kNone) return;
  if (s.published * model.block_size == s.checkpoint_end) (void)make_snapshot(s.checkpoint, s.last_published);
}

void RouterCore::State::find_snapshot(RouterSequence& s) {
  const auto hit = cache.acquire_with_snapshot(s.known(), s.adapter, s.table);
  s.last_published = hit.last;
  s.published = static_cast<std::uint32_t>(s.table.size());
  if (hit.snapshot != kNone) {
    pin(hit.snapshot);
    s.base = hit.snapshot;
    s.base_end = s.published * model.block_size;
    s.stateless = true;
  }
  cut(s, s.base_end, hit.known * model.block_size);
}

void RouterCore::State::cut(RouterSequence& s, std::uint32_t len, std::uint32_t branch) const {
  const std::uint32_t end = (s.known_len - 1) / model.block_size * model.block_size;
  if (branch > len && branch < end) s.cut_first = branch;
  if (end > len) (s.cut_first == 0 ? s.cut_first : s.cut_second) = end;
}

}  // namespace troupe::actors
