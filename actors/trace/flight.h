// The last blocks of a run, in memory of a fixed size. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace troupe::actors::trace {

class FlightRing {
 public:
  explicit FlightRing(std::size_t bytes);  // 0 = keeps nothing
  // Forgets the oldest blocks to make room.
  void push(const std::uint8_t* block, std::size_t size);
  // f(data, size) for pieces that make up the blocks, oldest first.
  template <class F>
  void for_each_piece(F&& f) const {
    const std::size_t used = static_cast<std::size_t>(end_ - begin_), at = static_cast<std::size_t>(begin_ % size_);
    const std::size_t first = used < size_ - at ? used : size_ - at;
    if (first != 0) f(data_.get() + at, first);
    if (used != first) f(data_.get(), used - first);
  }
  bool empty() const { return begin_ == end_; }
  bool whole() const { return begin_ == 0 && !skipped_; }  // nothing was forgotten
  std::size_t capacity() const { return size_; }

 private:
  std::uint32_t oldest_size() const;
  struct Free {
    void operator()(std::uint8_t* p) const { ::operator delete(p); }
  };
  std::size_t size_;
  std::unique_ptr<std::uint8_t, Free> data_;  // pages are the system's until they are used
  std::uint64_t begin_ = 0;                   // bytes since the start
  std::uint64_t end_ = 0;
  bool skipped_ = false;  // a block larger than the memory
};

}  // namespace troupe::actors::trace
