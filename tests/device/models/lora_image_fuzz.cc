// libFuzzer: what a peer sends for an adapter is either refused with a reason, or every matrix of it can be read.
#include <cmath>
#include <cstdlib>

#include "device/models/lora_image.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::device;
  ModelConfig model;
  model.layers = 1;
  model.width = model.ffn = model.head_dim = 4;
  model.heads = model.kv_heads = 1;
  // With its right head, so that the rest is reached.
  auto bytes = make_lora_image(model, std::vector<LoraImagePair>(kLoraTargets)).bytes;
  bytes.resize(32);
  bytes.insert(bytes.end(), data, data + size);
  const auto r = LoraAdapter::from_image(bytes, "fuzz", model);
  if (!r) {
    if (r.error().what.empty()) std::abort();
    return 0;
  }
  unsigned sum = 0;
  for (std::size_t i = 0; i < kLoraTargets; ++i) {
    const LoraPair& p = r.value().pair(0, static_cast<LoraTarget>(i));
    if (p.rank == 0) continue;
    if (p.rank > r.value().rank() || !std::isfinite(p.scale) || p.a.rows != p.rank || p.b.cols != p.rank) std::abort();
    for (const auto& w : {p.a, p.b})
      for (std::size_t k = 0; k < std::size_t{w.rows} * w.cols * 4; ++k) sum += static_cast<const std::uint8_t*>(w.data)[k];
  }
  [[maybe_unused]] volatile unsigned sink = sum;  // so that no read is optimised away
  return 0;
}
