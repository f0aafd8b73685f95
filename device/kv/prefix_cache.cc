#include "device/kv/prefix_cache.h"

#include <algorithm>

namespace troupe::device {

namespace {
std::uint64_t mix(std::uint64_t x) {  // splitmix64's finalizer
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
}  // namespace

PrefixCache::PrefixCache(BlockPool& pool, std::uint32_t block_size, std::uint64_t hash_mask)
    : pool_(pool), block_size_(block_size), hash_mask_(hash_mask), entries_(pool.total()), tokens_(std::size_t{pool.total()} * block_size) {
  std::size_t n = 16;
  while (n < std::size_t{2} * pool.total()) n *= 2;
  buckets_.assign(n, kNone);
  lost_.reserve(pool.total());
}

std::uint64_t PrefixCache::hash(std::uint64_t parent, const TokenHistory& tokens, std::uint32_t position, AdapterRef adapter) const {
  std::uint64_t h = mix(parent ^ (std::uint64_t{adapter.generation} << 32 | adapter.slot) ^ 0x9E3779B97F4A7C15u);
  for (std::uint32_t k = 0; k < block_size_; ++k) h = mix(h + tokens[position + k] + 0x9E3779B97F4A7C15u);
  return h & hash_mask_;
}

BlockId PrefixCache::find(std::uint64_t h, BlockId parent, const TokenHistory& tokens, std::uint32_t position, AdapterRef adapter) const {
  for (BlockId b = buckets_[h & (buckets_.size() - 1)]; b != kNone; b = entries_[b].bucket_next) {
    const Entry& e = entries_[b];
    if (e.hash != h || e.parent != parent || e.adapter != adapter) continue;
    const Token* held = &tokens_[std::size_t{b} * block_size_];
    std::uint32_t k = 0;
    while (k < block_size_ && held[k] == tokens[position + k]) ++k;
    if (k == block_size_) return b;
  }
  return kNone;
}

PrefixCache::Ref PrefixCache::acquire(const TokenHistory& tokens, AdapterRef adapter, std::vector<BlockId>& table) {
  Ref last;
  std::uint64_t h = 0;
  for (std::uint32_t position = 0; position + block_size_ < tokens.size(); position += block_size_) {
    h = hash(h, tokens, position, adapter);
    const BlockId b = find(h, last.block, tokens, position, adapter);
    if (b == kNone) break;
    unlist(b);
    (void)pool_.share(b);
    table.push_back(b);
    last = {b, entries_[b].serial};
  }
  return last;
}

PrefixCache::Hit PrefixCache::acquire_with_snapshot(const TokenHistory& tokens, AdapterRef adapter, std::vector<BlockId>& table) {
  Hit hit;
  const std::size_t before = table.size();
  std::size_t kept = before;
  BlockId last = kNone;
  std::uint64_t h = 0;
  for (std::uint32_t position = 0; position + block_size_ < tokens.size(); position += block_size_) {
    h = hash(h, tokens, position, adapter);
    const BlockId b = find(h, last, tokens, position, adapter);
    if (b == kNone) break;
    ++hit.known;
    table.push_back(last = b);
    if (entries_[b].snapshot == kNone) continue;
    hit.last = {b, entries_[b].serial};
    hit.snapshot = entries_[b].snapshot;
    kept = table.size();
  }
  table.resize(kept);
  for (std::size_t i = before; i < kept; ++i) {
    unlist(table[i]);
    (void)pool_.share(table[i]);
  }
  return hit;
}

bool PrefixCache::attach(Ref block, std::uint32_t snapshot) {
  if (block.block == kNone) return false;
  Entry& e = entries_[block.block];
  if (!e.live || e.serial != block.serial || e.snapshot != kNone) return false;
  e.snapshot = snapshot;
  return true;
}

PrefixCache::Ref PrefixCache::publish(BlockId block, Ref parent, const TokenHistory& tokens, std::uint32_t position, AdapterRef adapter) {
  if (position > 0 && (parent.block == kNone || !entries_[parent.block].live || entries_[parent.block].serial != parent.serial)) return {};
  const std::uint64_t h = hash(position == 0 ? 0 : entries_[parent.block].hash, tokens, position, adapter);
  if (const BlockId same = find(h, parent.block, tokens, position, adapter); same != kNone) return {same, entries_[same].serial};
  Entry& e = entries_[block];
  e = {};
  e.live = true;
  e.serial = ++serial_;
  e.hash = h;
  e.adapter = adapter;
  e.parent = parent.block;
  BlockId& bucket = buckets_[h & (buckets_.size() - 1)];
  e.bucket_next = bucket;
  bucket = block;
  if (e.parent != kNone) {
    e.next_sibling = entries_[e.parent].first_child;
    if (e.next_sibling != kNone) entries_[e.next_sibling].prev_sibling = block;
    entries_[e.parent].first_child = block;
  }
  for (std::uint32_t k = 0; k < block_size_; ++k) tokens_[std::size_t{block} * block_size_ + k] = tokens[position + k];
  pool_.publish(block);
  return {block, e.serial};
}

void PrefixCache::list(BlockId block) {
  Entry& e = entries_[block];
  if (pool_.class_of(block) != BlockPool::Class::cached || e.idle) return;
  e.idle = true;
  e.older = newest_;
  e.newer = kNone;
  (newest_ == kNone ? oldest_ : entries_[newest_].newer) = block;
  newest_ = block;
}

void PrefixCache::unlist(BlockId block) {
  Entry& e = entries_[block];
  if (!e.idle) return;
  e.idle = false;
  (e.older == kNone ? oldest_ : entries_[e.older].newer) = e.newer;
  (e.newer == kNone ? newest_ : entries_[e.newer].older) = e.older;
}

// With it go the blocks after it: without it they cannot be found.
void PrefixCache::forget(BlockId block) {
  Entry& e = entries_[block];
  while (e.first_child != kNone) forget(e.first_child);
  unlist(block);
  if (e.prev_sibling != kNone)
    entries_[e.prev_sibling].next_sibling = e.next_sibling;
  else if (e.parent != kNone)
    entries_[e.parent].first_child = e.next_sibling;
  if (e.next_sibling != kNone) entries_[e.next_sibling].prev_sibling = e.prev_sibling;
  BlockId* at = &buckets_[e.hash & (buckets_.size() - 1)];
  while (*at != block) at = &entries_[*at].bucket_next;
  *at = e.bucket_next;
  e.live = false;
  if (e.snapshot != kNone) lost_.push_back(e.snapshot);
  e.snapshot = kNone;
  pool_.unpublish(block);
}

Result<BlockId> PrefixCache::take() {
  if (pool_.free() == 0 && oldest_ != kNone) {
    ++reclaimed_;
    forget(oldest_);
  }
  return pool_.take();
}

Result<void> PrefixCache::drop(BlockId block, bool fence) {
  TROUPE_TRY(pool_.drop(block, fence));
  list(block);
  return success();
}

Result<void> PrefixCache::settle(BlockId block) {
  TROUPE_TRY(pool_.settle(block));
  list(block);
  return success();
}

void PrefixCache::clear() {
  for (BlockId b = 0; b < entries_.size(); ++b)
    if (entries_[b].live) forget(b);
}

std::string PrefixCache::check() const {
  std::uint32_t idle = 0;
  for (BlockId b = oldest_; b != kNone; b = entries_[b].newer) {
    if (pool_.class_of(b) != BlockPool::Class::cached) return "R8: block " + std::to_string(b) + " is listed as idle and is not";
    if (++idle > pool_.cached()) break;
  }
  if (idle != pool_.cached())
    return "R8: " + std::to_string(pool_.cached()) + " blocks are idle in the prefix cache, and " + std::to_string(idle) + " are listed";
  for (BlockId b = 0; b < entries_.size(); ++b) {
    const Entry& e = entries_[b];
    if (e.live != pool_.published(b)) return "R8: pool and prefix cache disagree about block " + std::to_string(b);
    if (!e.live) continue;
    if (pool_.class_of(b) == BlockPool::Class::free) return "R3: block " + std::to_string(b) + " is published and free";
    if (e.parent != kNone && !entries_[e.parent].live) return "R3: block " + std::to_string(b) + " is published after one that is not";
  }
  return {};
}

}  // namespace troupe::device
