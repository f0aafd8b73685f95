// The prefix cache of one device's KV pool: full blocks of settled positions, found again by what they hold.
//
// A block is identified by its tokens, by the block before it (and so by every token before it) and by the adapter with
// its generation; the hash only finds candidates, equality is compared. A published block is never written again: its
// sequence settled past it. Blocks that nobody uses stay (class cached) until take() reclaims the one that was idle
// longest, together with every block that is reachable through it only.
//
// Of a model with recurrent layers a block's KV alone lets nobody go on behind it: a block may have a snapshot, the number of
// a version of the recurrent state behind its last position, which is the caller's. It goes when its block does.
//
// take(), acquire(), drop() and settle() stand for the pool's, so that idle blocks are listed. Nothing allocates after
// construction, if lost() is emptied. Deterministic, no thread of its own: the router's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/kv/block_pool.h"

namespace troupe::device {

// The known tokens of a sequence: its prompt, and after a preemption the output so far.
struct TokenHistory {
  std::span<const Token> prompt;
  std::span<const Token> output;
  std::uint32_t size() const { return static_cast<std::uint32_t>(prompt.size() + output.size()); }
  Token operator[](std::uint32_t i) const { return i < prompt.size() ? prompt[i] : output[i - prompt.size()]; }
};

class PrefixCache {
 public:
  static constexpr BlockId kNone = 0xFFFFFFFFu;
  // A published block as a sequence remembers it: void once it was reclaimed, whatever the block holds then.
  struct Ref {
    BlockId block = kNone;
    std::uint64_t serial = 0;
  };

  // `hash_mask` is for tests: 0 makes every hash equal.
  PrefixCache(BlockPool& pool, std::uint32_t block_size, std::uint64_t hash_mask = ~std::uint64_t{0});

  // Appends to `table` the published blocks that hold the beginning of `tokens`, one reference each, and answers the
  // last one. At least one token is left to compute: at most (size - 1) / block_size blocks.
  Ref acquire(const TokenHistory& tokens, AdapterRef adapter, std::vector<BlockId>& table);
  // Publishes a used block that holds tokens [position, position + block_size), all settled, after the block `parent`
  // (none: position 0). Answers what stands for these tokens from now on: the block, or the one that was there before;
  // none if `parent` is gone.
  Ref publish(BlockId block, Ref parent, const TokenHistory& tokens, std::uint32_t position, AdapterRef adapter);

  // As acquire(), up to the last block that has a snapshot. `known`: how many blocks acquire() would have found.
  struct Hit {
    Ref last;
    std::uint32_t snapshot = kNone;
    std::uint32_t known = 0;
  };
  Hit acquire_with_snapshot(const TokenHistory& tokens, AdapterRef adapter, std::vector<BlockId>& table);
  // False: the block was reclaimed, or has one already.
  bool attach(Ref block, std::uint32_t snapshot);
  Ref parent(Ref block) const {
    const BlockId b = entries_[block.block].parent;
    return {b, b == kNone ? 0 : entries_[b].serial};
  }
  void detach(BlockId block) { entries_[block].snapshot = kNone; }
  // Snapshots whose blocks were forgotten since; the caller takes them.
  std::vector<std::uint32_t>& lost() { return lost_; }

  // As BlockPool's; take() reclaims when no block is free.
  Result<BlockId> take();
  Result<void> drop(BlockId block, bool fence);
  Result<void> settle(BlockId block);
  // Blocks that take() can give: free or idle.
  std::uint32_t available() const { return pool_.free() + pool_.cached(); }
  // Forgets every block; idle ones become free.
  void clear();

  std::uint64_t reclaimed() const { return reclaimed_; }
  // Empty, or what is wrong with the lists; O(blocks).
  std::string check() const;

 private:
  struct Entry {
    bool live = false;
    bool idle = false;  // in the list of idle blocks
    std::uint64_t serial = 0;
    std::uint64_t hash = 0;
    AdapterRef adapter;
    std::uint32_t snapshot = kNone;
    BlockId parent = kNone;
    BlockId bucket_next = kNone;
    BlockId first_child = kNone, next_sibling = kNone, prev_sibling = kNone;
    BlockId older = kNone, newer = kNone;
  };
  std::uint64_t hash(std::uint64_t parent, const TokenHistory& tokens, std::uint32_t position, AdapterRef adapter) const;
  BlockId find(std::uint64_t hash, BlockId parent, const TokenHistory& tokens, std::uint32_t position, AdapterRef adapter) const;
  void forget(BlockId block);
  void list(BlockId block);  // follows the pool's class
  void unlist(BlockId block);

  BlockPool& pool_;
  const std::uint32_t block_size_;
  const std::uint64_t hash_mask_;
  std::vector<Entry> entries_;  // by block
  std::vector<Token> tokens_;   // by block
  std::vector<BlockId> buckets_;
  BlockId oldest_ = kNone, newest_ = kNone;  // idle blocks
  std::vector<std::uint32_t> lost_;
  std::uint64_t serial_ = 0;
  std::uint64_t reclaimed_ = 0;
};

}  // namespace troupe::device
