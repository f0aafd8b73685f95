#include "device/kv/block_pool.h"

namespace troupe::device {

namespace {
Error misuse(const char* what, BlockId block) {
  return Error{ErrorCode::internal, std::string(what) + " block " + std::to_string(block) + ": the router's books are wrong; please report"};
}
}  // namespace

BlockPool::BlockPool(std::uint32_t n_blocks) : blocks_(n_blocks) {
  free_.reserve(n_blocks);
  for (std::uint32_t i = n_blocks; i > 0; --i) free_.push_back(i - 1);
}

Result<BlockId> BlockPool::take() {
  if (free_.empty()) return Error{ErrorCode::kv_exhausted, "no KV block is free"};
  const BlockId block = free_.back();
  free_.pop_back();
  blocks_[block] = {Class::used, 1};
  ++used_;
  return block;
}

Result<void> BlockPool::drop(BlockId block, bool fence) {
  if (block >= total() || blocks_[block].cls != Class::used) return misuse("second free of", block);
  if (--blocks_[block].refs > 0) return success();
  --used_;
  if (fence) {
    blocks_[block].cls = Class::fenced;
    ++fenced_;
  } else {
    blocks_[block].cls = Class::free;
    free_.push_back(block);
  }
  return success();
}

Result<void> BlockPool::settle(BlockId block) {
  if (block >= total() || blocks_[block].cls != Class::fenced) return misuse("settle of an unfenced", block);
  blocks_[block].cls = Class::free;
  --fenced_;
  free_.push_back(block);
  return success();
}

}  // namespace troupe::device
