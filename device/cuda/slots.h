// Tables of handles: an entry has a generation that is odd while it is alive, and a handle is {generation, index + 1}, so
// that one that was destroyed is never taken for its successor. Looking up is lock-free; who makes and destroys holds a
// lock of his own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace troupe::device {

inline std::size_t index_of(std::uint64_t handle) { return (handle & 0xFFFFFFFFu) - 1; }

// The index of an entry that is not alive; size() = none.
template <class Slots>
std::size_t free_slot(const Slots& slots) {
  std::size_t i = 0;
  while (i < slots.size() && slots[i].generation.load(std::memory_order_relaxed) % 2 == 1) ++i;
  return i;
}

template <class Slots>
std::size_t count_alive(const Slots& slots) {
  std::size_t n = 0;
  for (const auto& slot : slots) n += slot.generation.load(std::memory_order_relaxed) % 2;
  return n;
}

// Makes entry `i`, which is all set, alive.
template <class Slots>
std::uint64_t enliven(Slots& slots, std::size_t i) {
  const std::uint32_t generation = slots[i].generation.fetch_add(1, std::memory_order_release) + 1;
  return std::uint64_t{generation} << 32 | (i + 1);
}

// nullptr: not alive.
template <class Slots>
typename Slots::value_type* find_slot(Slots& slots, std::uint64_t handle) {
  const std::size_t i = index_of(handle);
  const std::uint64_t generation = handle >> 32;
  const bool alive = generation % 2 == 1 && i < slots.size() && slots[i].generation.load(std::memory_order_acquire) == generation;
  return alive ? &slots[i] : nullptr;
}

}  // namespace troupe::device
