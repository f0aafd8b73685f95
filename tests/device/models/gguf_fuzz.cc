// libFuzzer: any bytes are either refused with a reason, or every value and every tensor of the file can be read.
#include <cstdlib>

#include "device/models/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::device;
  auto file = GgufFile::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  if (!file) {
    if (file.error().what.empty()) std::abort();
    return 0;
  }
  const GgufFile& f = file.value();
  unsigned sum = 0;
  for (const auto& key : f.keys()) {
    const bool read = f.get_uint(key) || f.get_float(key) || f.get_bool(key) || f.get_ints(key) || f.get_floats(key);
    if (auto s = f.get_string(key)) {
      for (char c : s.value()) sum += static_cast<unsigned char>(c);
    }
    if (auto all = f.get_strings(key)) {
      for (auto s : all.value()) {
        for (char c : s) sum += static_cast<unsigned char>(c);
      }
    }
    sum += read;
    if (!f.has(key)) std::abort();
  }
  for (const auto& t : f.tensors()) {
    if (f.tensor(t.name) != &t) std::abort();
    for (std::size_t i = 0; i < t.bytes; ++i) sum += std::to_integer<unsigned>(t.data[i]);
  }
  [[maybe_unused]] volatile unsigned sink = sum;  // so that no read is optimised away
  return 0;
}
