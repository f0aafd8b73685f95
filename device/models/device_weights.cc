#include "device/models/device_weights.h"

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "device/models/upload.h"

namespace troupe::device {

namespace {

constexpr std::size_t kAlign = 256;

// Calls f(pointer, bytes) for every tensor of the weights; f may set the pointer.
template <class F>
void for_each_tensor(LlamaWeights& w, const ModelConfig& c, F&& f) {
  const auto matrix = [&](kernels::Weight& m) { f(m.data, kernels::row_bytes(m.format, m.cols) * m.rows); };
  const auto vector = [&](const float*& v, std::size_t n) {
    const void* p = v;
    f(p, n * sizeof(float));
    v = static_cast<const float*>(p);
  };
  matrix(w.embedding);
  matrix(w.output);
  vector(w.output_norm, c.width);
  for (LlamaLayer& l : w.layers) {
    for (kernels::Weight* m : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) matrix(*m);
    vector(l.attn_norm, c.width);
    vector(l.ffn_norm, c.width);
    vector(l.q_bias, c.q_width());
    vector(l.k_bias, c.kv_width());
    vector(l.v_bias, c.kv_width());
    vector(l.q_norm, c.head_dim);
    vector(l.k_norm, c.head_dim);
    DeltaLayer& d = l.delta;
    for (kernels::Weight* m : {&d.qkv, &d.z, &d.a, &d.b, &d.out}) matrix(*m);
    vector(d.conv, std::size_t{c.delta.taps} * c.delta.channels());
    vector(d.rate, c.delta.v_heads);
    vector(d.dt_bias, c.delta.v_heads);
    vector(d.norm, c.delta.v_dim);
    vector(d.q_gain, c.delta.k_dim);
    vector(d.k_gain, c.delta.k_dim);
  }
}

}  // namespace

Result<LlamaWeights> on_device(const LlamaWeights& host, const ModelConfig& config, DeviceMemory& memory, Driver& driver) {
  LlamaWeights out;
  out.embedding = host.embedding;
  out.layers = host.layers;
  out.output_norm = host.output_norm;
  out.output = host.output;
  std::unordered_map<const void*, std::size_t> offsets;  // tied weights are there once
  std::vector<UploadPiece> pieces;
  std::size_t total = 0;
  for_each_tensor(out, config, [&](const void* p, std::size_t bytes) {
    if (p == nullptr || !offsets.emplace(p, total).second) return;
    pieces.push_back({total, p, bytes});
    total += (bytes + kAlign - 1) / kAlign * kAlign;
  });
  TROUPE_TRY(auto* const area, memory.get<std::byte>(total));
  for (UploadPiece& piece : pieces) piece.to += address(area);
  TROUPE_TRY(upload(driver, pieces));
  for_each_tensor(out, config, [&](const void*& p, std::size_t) {
    if (p != nullptr) p = area + offsets.at(p);
  });
  return out;
}

}  // namespace troupe::device
