// The KV block pool of one device: which class every block is in, how many table entries name it, how many fences hold
// it, and whether the prefix cache keeps it.
//
// Invariant: each block is in exactly one class; free + used + cached + fenced == total (R8).
//   used    as many references as there are block-table entries of live sequences that name it (at least one);
//   fenced  no reference, and a step in flight of a released sequence may still touch it (R3);
//   cached  neither, and published: its contents may be shared again, or reclaimed. Never counted as free before that;
//   free    none of these.
// Every misuse (a second free, a reference to a free block) is refused and says so.
//
// Deterministic, no thread of its own: the router's.
#pragma once

#include <cstdint>
#include <vector>

#include "messages/error.h"

namespace troupe::device {

class BlockPool {
 public:
  enum class Class : std::uint8_t { free, used, cached, fenced };

  explicit BlockPool(std::uint32_t n_blocks);

  std::uint32_t total() const { return static_cast<std::uint32_t>(blocks_.size()); }
  std::uint32_t free() const { return static_cast<std::uint32_t>(free_.size()); }
  std::uint32_t used() const { return count_[1]; }
  std::uint32_t cached() const { return count_[2]; }
  std::uint32_t fenced() const { return count_[3]; }
  Class class_of(BlockId block) const { return blocks_[block].cls; }
  std::uint32_t references(BlockId block) const { return blocks_[block].refs; }
  std::uint32_t fences(BlockId block) const { return blocks_[block].fences; }
  bool published(BlockId block) const { return blocks_[block].published; }

  // Free -> used, one reference. kv_exhausted when none is free. The most recently freed block comes first.
  Result<BlockId> take();
  // One more reference to a published block.
  Result<void> share(BlockId block);
  // Drops one reference. `fence`: a step in flight names the block on behalf of the owner; settle() follows.
  Result<void> drop(BlockId block, bool fence);
  // The last step that names the block on behalf of one released owner has settled.
  Result<void> settle(BlockId block);
  // The prefix cache keeps the block once nobody uses it, or does so no longer (an idle one becomes free).
  void publish(BlockId block) { blocks_[block].published = true; }
  void unpublish(BlockId block);

 private:
  struct Block {
    Class cls = Class::free;
    bool published = false;
    std::uint32_t refs = 0;
    std::uint32_t fences = 0;
  };
  void classify(BlockId block);

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;  // a stack
  std::uint32_t count_[4] = {};
};

}  // namespace troupe::device
