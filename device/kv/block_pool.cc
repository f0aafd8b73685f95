#include "device/kv/block_pool.h"

namespace troupe::device {

namespace {
Error misuse(const char* what, BlockId block) {
  return Error{ErrorCode::internal,
               std::string(what) + " block " + std::to_string(block) + ": the router's books are wrong; please report"};
}
}  // namespace

BlockPool::BlockPool(std::uint32_t n_blocks) : blocks_(n_blocks) {
  free_.reserve(n_blocks);
  for (std::uint32_t i = n_blocks; i > 0; --i) free_.push_back(i - 1);
  count_[0] = n_blocks;
}

void BlockPool::classify(BlockId block) {
  Block& b = blocks_[block];
  const Class cls = b.refs > 0 ? Class::used : b.fences > 0 ? Class::fenced : b.published ? Class::cached : Class::free;
  if (cls == b.cls) return;
  --count_[static_cast<int>(b.cls)];
  ++count_[static_cast<int>(cls)];
  b.cls = cls;
  if (cls == Class::free) free_.push_back(block);
}

Result<BlockId> BlockPool::take() {
  if (free_.empty()) return Error{ErrorCode::kv_exhausted, "no KV block is free"};
  const BlockId block = free_.back();
  free_.pop_back();
  blocks_[block].refs = 1;
  classify(block);
  return block;
}

Result<void> BlockPool::share(BlockId block) {
  if (block >= total() || !blocks_[block].published) return misuse("a share of an unpublished", block);
  ++blocks_[block].refs;
  classify(block);
  return success();
}

Result<void> BlockPool::drop(BlockId block, bool fence) {
  if (block >= total() || blocks_[block].refs == 0) return misuse("second free of", block);
  --blocks_[block].refs;
  if (fence) ++blocks_[block].fences;
  classify(block);
  return success();
}

Result<void> BlockPool::settle(BlockId block) {
  if (block >= total() || blocks_[block].fences == 0) return misuse("settle of an unfenced", block);
  --blocks_[block].fences;
  classify(block);
  return success();
}

void BlockPool::unpublish(BlockId block) {
  blocks_[block].published = false;
  classify(block);
}

}  // namespace troupe::device
