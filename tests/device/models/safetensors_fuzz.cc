// libFuzzer: any bytes are either refused with a reason, or every tensor of the file can be read.
#include <cstdlib>

#include "device/models/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::device;
  const auto m = SafetensorsModel::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  if (!m) {
    if (m.error().what.empty()) std::abort();
    return 0;
  }
  unsigned sum = 0;
  for (const StoredTensor& t : m.value().tensors()) {
    if (m.value().tensor(t.name) != &t) std::abort();
    for (const std::uint64_t d : t.dims) sum += static_cast<unsigned>(d);
    for (std::size_t i = 0; i < t.bytes; ++i) sum += std::to_integer<unsigned>(t.data[i]);
  }
  [[maybe_unused]] volatile unsigned sink = sum;  // so that no read is optimised away
  return 0;
}
