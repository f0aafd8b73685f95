// Mailbox elements from a pool: a one-way message without an allocation.
//
// A BlockPool belongs to one sender and is used by its thread only. An element is freed by whichever thread consumed
// it (CAF calls request_deletion) and goes back to its pool over a lock-free list. A pool may die before its elements:
// what is out is counted, and the last one to come home frees the rest.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

#include "actors/wire/inspect.h"

namespace troupe::actors {

class BlockPool {
 public:
  static constexpr std::size_t kBlockBytes = 448;

  BlockPool() : home_(new Home) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() {
    free_chain(free_);
    home_->release();
  }

  // kBlockBytes bytes, aligned for anything. The pool's thread only.
  void* take() {
    if (free_ == nullptr) free_ = home_->returned.exchange(nullptr, std::memory_order_acquire);
    Block* block = free_;
    if (block != nullptr) {
      free_ = block->next;
    } else {
      block = new Block;
      block->home = home_;
      ++made_;
    }
    home_->refs.fetch_add(1, std::memory_order_relaxed);
    return block->bytes;
  }
  // Any thread; `bytes` came from take() of any pool.
  static void give_back(void* bytes) noexcept {
    auto* block = reinterpret_cast<Block*>(static_cast<std::byte*>(bytes) - offsetof(Block, bytes));
    Home* home = block->home;
    Block* head = home->returned.load(std::memory_order_relaxed);
    do block->next = head;
    while (!home->returned.compare_exchange_weak(head, block, std::memory_order_release, std::memory_order_relaxed));
    home->release();
  }

  std::size_t made() const { return made_; }  // blocks ever allocated; constant in steady state

 private:
  struct Home;
  struct Block {
    Home* home = nullptr;
    Block* next = nullptr;
    alignas(std::max_align_t) std::byte bytes[kBlockBytes];
  };
  struct Home {
    std::atomic<Block*> returned{nullptr};
    std::atomic<std::size_t> refs{1};  // the pool, and every block that is out
    void release() noexcept {
      if (refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      free_chain(returned.load(std::memory_order_acquire));
      delete this;
    }
  };
  static void free_chain(Block* block) noexcept {
    while (block != nullptr) delete std::exchange(block, block->next);
  }

  Home* home_;
  Block* free_ = nullptr;
  std::size_t made_ = 0;
};

// A mailbox element that holds one message, in a block of a pool. Handlers take the message by const reference, so it
// is neither copied nor moved on its way.
template <class M>
class PooledElement final : public caf::mailbox_element, public caf::detail::tuple_vals_impl<caf::type_erased_tuple, M> {
  using Tuple = caf::detail::tuple_vals_impl<caf::type_erased_tuple, M>;

 public:
  static caf::mailbox_element_ptr make(BlockPool& pool, M&& message) {
    static_assert(sizeof(PooledElement) <= BlockPool::kBlockBytes, "raise kBlockBytes, or put the payload behind Shared<T>");
    static_assert(alignof(PooledElement) <= alignof(std::max_align_t));
    return caf::mailbox_element_ptr{new (pool.take()) PooledElement(std::move(message))};
  }

  caf::type_erased_tuple& content() override { return *this; }
  const caf::type_erased_tuple& content() const override { return *this; }
  caf::message move_content_to_message() override { return caf::make_message(std::move(std::get<0>(this->data()))); }
  caf::message copy_content_to_message() const override { return caf::make_message(std::get<0>(this->data())); }
  void request_deletion(bool) const noexcept override {
    auto* self = const_cast<PooledElement*>(this);
    self->~PooledElement();
    BlockPool::give_back(self);
  }

 private:
  explicit PooledElement(M&& message) : caf::mailbox_element(nullptr, caf::make_message_id(), {}), Tuple(std::move(message)) {}
};

}  // namespace troupe::actors
