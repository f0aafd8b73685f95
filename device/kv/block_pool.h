// The KV block pool of one device: which class every block is in, and how many table entries name it.
//
// Invariant: each block is in exactly one class; free + used + cached + fenced == total (R8). A used block has as many
// references as there are block-table entries that name it.
// A block that a step in flight may still touch goes to `fenced` when its last reference is dropped, and to `free` only
// by settle() (R3). Every misuse (a second free, a reference to a free block) is refused and says so.
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
  std::uint32_t used() const { return used_; }
  std::uint32_t cached() const { return cached_; }
  std::uint32_t fenced() const { return fenced_; }
  Class class_of(BlockId block) const { return blocks_[block].cls; }
  std::uint32_t references(BlockId block) const { return blocks_[block].refs; }

  // Free -> used, one reference. kv_exhausted when none is free. The most recently freed block comes first.
  Result<BlockId> take();
  // Drops one reference; with the last one the block becomes fenced (steps in flight may name it) or free.
  Result<void> drop(BlockId block, bool fence);
  // Fenced -> free: the last step that names it has settled.
  Result<void> settle(BlockId block);

 private:
  struct Block {
    Class cls = Class::free;
    std::uint32_t refs = 0;
  };
  std::vector<Block> blocks_;
  std::vector<BlockId> free_;  // a stack
  std::uint32_t used_ = 0;
  std::uint32_t cached_ = 0;
  std::uint32_t fenced_ = 0;
};

}  // namespace troupe::device
