// libFuzzer: an adapter_config.json, and after a byte 0 an adapter_model.safetensors, are either refused with a reason, or
// every matrix has the model's shape and can be read.
#include <cmath>
#include <cstdlib>

#include "device/models/lora.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::device;
  ModelConfig model;
  model.layers = 1;
  model.width = model.ffn = model.head_dim = 4;
  model.heads = model.kv_heads = 1;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = std::min(all.find('\0'), size);
  const std::size_t begin = std::min(cut + 1, size);
  const auto r = LoraAdapter::parse(all.substr(0, cut), {reinterpret_cast<const std::byte*>(data) + begin, size - begin}, "fuzz", model);
  if (!r) {
    if (r.error().what.empty()) std::abort();
    return 0;
  }
  const LoraAdapter& adapter = r.value();
  unsigned sum = 0;
  for (std::size_t i = 0; i < kLoraTargets; ++i) {
    const LoraPair& p = adapter.pair(0, static_cast<LoraTarget>(i));
    if (p.rank == 0) continue;
    if (p.rank > adapter.rank() || !std::isfinite(p.scale) || p.a.rows != p.rank || p.b.cols != p.rank) std::abort();
    for (const auto& w : {p.a, p.b}) {
      const std::size_t bytes = std::size_t{w.rows} * w.cols * (w.format == troupe::kernels::Format::f32 ? 4 : 2);
      for (std::size_t k = 0; k < bytes; ++k) sum += static_cast<const std::uint8_t*>(w.data)[k];
    }
  }
  [[maybe_unused]] volatile unsigned sink = sum;  // so that no read is optimised away
  return 0;
}
