// libFuzzer: a config.json, and after a byte 0 a generation_config.json, are either refused with a reason or keep what
// model_config.h promises.
#include <cmath>
#include <cstdlib>

#include "device/models/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::device;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = all.find('\0');
  const auto r = model_config_from_json(all.substr(0, cut), cut == all.npos ? "" : all.substr(cut + 1), "fuzz");
  if (!r) {
    if (r.error().what.empty()) std::abort();
    return 0;
  }
  const ModelConfig& c = r.value();
  for (const std::uint32_t n : {c.vocab, c.layers, c.width, c.ffn, c.heads, c.kv_heads, c.head_dim, c.context, c.rotated}) {
    if (n == 0 || n > 1u << 24) std::abort();
  }
  if (c.heads % c.kv_heads != 0 || c.rotated % 2 != 0 || c.rotated > c.head_dim || c.inv_freq.size() != c.rotated / 2) std::abort();
  for (const double f : c.inv_freq) {
    if (!(f > 0.0) || !std::isfinite(f)) std::abort();
  }
  for (const troupe::Token id : c.eos_ids) {
    if (id >= c.vocab) std::abort();
  }
  return 0;
}
