#include "device/models/lora_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace troupe::device {

static_assert(std::endian::native == std::endian::little);

namespace {

constexpr std::uint32_t kMagic = 0x4D494C54;  // "TLIM"
constexpr std::uint32_t kVersion = 1;
using Head = std::array<std::uint32_t, 8>;

Head head_of(const ModelConfig& m) {
  return {kMagic, kVersion, m.layers, m.width, m.ffn, m.q_rows(), m.q_width(), m.kv_width()};
}

std::size_t floats(const LoraShape& shape, std::uint32_t rank, bool of_a) { return std::size_t{of_a ? shape.cols : shape.rows} * rank; }

Error bad(const std::string& name, const std::string& what) {
  return {ErrorCode::bad_file, fmt::format("{}: {}: this is no adapter that another replica with the same model sent", name, what)};
}

}  // namespace

LoraImage make_lora_image(const ModelConfig& model, const std::vector<LoraImagePair>& pairs) {
  LoraImage out;
  const Head head = head_of(model);
  std::size_t at = sizeof head + pairs.size() * sizeof(LoraImagePair);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    LoraImagePlace& place = out.places.emplace_back();
    if (pairs[i].rank == 0) continue;
    const LoraShape shape = lora_shape(model, static_cast<LoraTarget>(i % kLoraTargets));
    place.a = at;
    place.b = at + floats(shape, pairs[i].rank, true) * sizeof(float);
    at = place.b + floats(shape, pairs[i].rank, false) * sizeof(float);
  }
  out.bytes.resize(at);
  std::memcpy(out.bytes.data(), head.data(), sizeof head);
  std::memcpy(out.bytes.data() + sizeof head, pairs.data(), pairs.size() * sizeof(LoraImagePair));
  return out;
}

Result<LoraAdapter> LoraAdapter::from_image(std::span<const std::uint8_t> bytes, const std::string& name, const ModelConfig& model) {
  static_assert(sizeof(LoraImagePair) == 8);
  const Head wanted = head_of(model);
  Head head{};
  std::vector<LoraImagePair> pairs(std::size_t{model.layers} * kLoraTargets);
  std::size_t at = sizeof head + pairs.size() * sizeof(LoraImagePair);
  if (bytes.size() < sizeof head) return bad(name, fmt::format("{} bytes", bytes.size()));
  std::memcpy(head.data(), bytes.data(), sizeof head);
  if (head != wanted) return bad(name, "it is of a model with other dimensions");
  if (bytes.size() < at) return bad(name, fmt::format("{} bytes, and {} are its head", bytes.size(), at));
  std::memcpy(pairs.data(), bytes.data() + sizeof head, pairs.size() * sizeof(LoraImagePair));
  LoraAdapter out;
  out.path_ = name;
  out.layers_.resize(model.layers);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto layer = static_cast<std::uint32_t>(i / kLoraTargets);
    const auto target = static_cast<LoraTarget>(i % kLoraTargets);
    const LoraImagePair& from = pairs[i];
    if (from.rank == 0) continue;
    const LoraShape shape = lora_shape(model, target);
    if (!has_target(model, layer, target)) return bad(name, fmt::format("it adapts {} of layer {}, which has none", device::name(target), layer));
    if (!std::isfinite(from.scale)) return bad(name, fmt::format("a scale is {}", from.scale));
    const std::size_t a = floats(shape, from.rank, true) * sizeof(float), b = floats(shape, from.rank, false) * sizeof(float);
    if (a > bytes.size() - at || b > bytes.size() - at - a) return bad(name, "it ends within a matrix");
    LoraPair& p = out.layers_[layer][i % kLoraTargets];
    p.rank = from.rank;
    p.scale = from.scale;
    p.a = {bytes.data() + at, kernels::Format::f32, from.rank, shape.cols};
    p.b = {bytes.data() + at + a, kernels::Format::f32, shape.rows, from.rank};
    at += a + b;
    out.rank_ = std::max(out.rank_, from.rank);
  }
  if (at != bytes.size()) return bad(name, fmt::format("{} bytes too many", bytes.size() - at));
  return out;
}

}  // namespace troupe::device
