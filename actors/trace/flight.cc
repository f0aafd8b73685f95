#include "actors/trace/flight.h"

#include <algorithm>
#include <cstring>

#include "actors/trace/format.h"

namespace troupe::actors::trace {

FlightRing::FlightRing(std::size_t bytes)
    : size_(std::max<std::size_t>(bytes, 1)), data_(static_cast<std::uint8_t*>(::operator new(size_))) {}

std::uint32_t FlightRing::oldest_size() const {
  std::uint8_t length[4];
  for (std::size_t i = 0; i < 4; ++i) length[i] = data_.get()[(begin_ + 8 + i) % size_];
  return static_cast<std::uint32_t>(kBlockPrefix) + get_le<std::uint32_t>(length);
}

void FlightRing::push(const std::uint8_t* block, std::size_t size) {
  if (size > size_) {
    skipped_ = true;
    return;
  }
  while (end_ - begin_ + size > size_) begin_ += oldest_size();
  const std::size_t at = static_cast<std::size_t>(end_ % size_), first = std::min(size, size_ - at);
  std::memcpy(data_.get() + at, block, first);
  std::memcpy(data_.get(), block + first, size - first);
  end_ += size;
}

}  // namespace troupe::actors::trace
