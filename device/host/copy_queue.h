// Copies of KV blocks on a stream of the host driver: each is a host function that calls the model once per block, with
// the list of blocks kept here until it has run.
//
// At most kCopies at a time. Threads: enqueue() the stream actor's; the calls run on the stream's thread. The stream must
// be empty when this goes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/driver.h"

namespace troupe::device {

template <class Model>
class CopyQueue {
 public:
  static constexpr std::size_t kCopies = 8;
  using CopyOne = void (Model::*)(BlockId block, std::byte* memory);

  explicit CopyQueue(Model& model) {
    for (Copy& copy : copies_) copy.model = &model;
  }

  // `memory`: [blocks][block_bytes]. bad_plan: a block >= n_blocks; overloaded: kCopies are enqueued; what the driver says.
  Result<void> enqueue(std::span<const BlockId> blocks, void* memory, std::size_t block_bytes, std::uint32_t n_blocks, CopyOne one,
                       Driver& driver, Stream stream) {
    for (const BlockId block : blocks)
      if (block >= n_blocks)
        return Error{ErrorCode::bad_plan, "a copy of block " + std::to_string(block) + " of " + std::to_string(n_blocks)};
    for (Copy& copy : copies_) {
      if (copy.queued.load(std::memory_order_acquire)) continue;
      copy.blocks.assign(blocks.begin(), blocks.end());
      copy.memory = static_cast<std::byte*>(memory);
      copy.block_bytes = block_bytes;
      copy.one = one;
      copy.queued.store(true, std::memory_order_relaxed);
      auto done = driver.enqueue_host_function({&run, &copy}, stream);
      if (!done) copy.queued.store(false, std::memory_order_relaxed);
      return done;
    }
    return Error{ErrorCode::overloaded, "too many copies of KV blocks are enqueued; await one first"};
  }

 private:
  struct Copy {
    Model* model = nullptr;
    std::vector<BlockId> blocks;
    std::byte* memory = nullptr;
    std::size_t block_bytes = 0;
    CopyOne one = nullptr;
    std::atomic<bool> queued{false};
  };
  static ErrorCode run(void* context) {
    Copy& copy = *static_cast<Copy*>(context);
    std::byte* at = copy.memory;
    for (const BlockId block : copy.blocks) {
      (copy.model->*copy.one)(block, at);
      at += copy.block_bytes;
    }
    copy.queued.store(false, std::memory_order_release);
    return ErrorCode::none;
  }

  std::array<Copy, kCopies> copies_;
};

}  // namespace troupe::device
