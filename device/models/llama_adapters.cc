#include "device/models/llama_adapters.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>

#include "kernels/host/half.h"

namespace troupe::device {

namespace {

float element(const kernels::Weight& w, std::size_t i) {
  const auto* bytes = static_cast<const std::byte*>(w.data);
  if (w.format == kernels::Format::f32) {
    float x = 0.0f;
    std::memcpy(&x, bytes + 4 * i, 4);
    return x;
  }
  std::uint16_t stored = 0;
  std::memcpy(&stored, bytes + 2 * i, 2);
  return w.format == kernels::Format::f16 ? kernels::half_to_float(stored) : std::bit_cast<float>(std::uint32_t{stored} << 16);
}

}  // namespace

Result<void> LlamaAdapters::init(DeviceMemory& memory, const ModelConfig& config, std::uint32_t max_loras, std::uint32_t max_rank) {
  config_ = config;
  max_rank_ = max_rank;
  if (max_loras == 0) return success();
  states_ = std::vector<std::atomic<State>>(max_loras + 2);
  TROUPE_TRY(table_, memory.get<kernels::LoraWeight>(std::size_t{config.layers} * kLoraTargets * states_.size()));
  std::size_t elements = 0;  // of a layer, per rank
  for (std::size_t i = 0; i < kLoraTargets; ++i) {
    const LoraShape shape = lora_shape(config, static_cast<LoraTarget>(i));
    elements += std::size_t{shape.rows} + shape.cols;
  }
  weights_.push_back(nullptr);
  pairs_.resize(states_.size());
  elements_ = elements * max_rank * config.layers;
  for (std::uint32_t slot = 1; slot < states_.size(); ++slot) {
    TROUPE_TRY(auto weights, memory.get<float>(elements_));
    weights_.push_back(weights);
  }
  return success();
}

Result<void> LlamaAdapters::known(std::uint32_t slot) const {
  if (slot != 0 && slot < states_.size()) return success();
  if (states_.empty())
    return Error{ErrorCode::unsupported, "the model was loaded without room for adapters: load it with max_loras above 0"};
  return Error{ErrorCode::not_found, fmt::format("adapter slot {}; 1 to {} are there", slot, states_.size() - 1)};
}

std::uint32_t LlamaAdapters::row_of(std::uint32_t r, LoraTarget target) const {
  if (config_.rope_pairs == RopePairs::halves || (target != LoraTarget::q && target != LoraTarget::k)) return r;
  const std::uint32_t i = r % config_.head_dim, half = config_.rotated / 2;
  if (i >= config_.rotated) return r;
  return r - i + (i < half ? 2 * i : 2 * (i - half) + 1);
}

Result<void> LlamaAdapters::upload(std::uint32_t slot, const LoraAdapter& adapter) {
  return upload(slot, adapter, [](std::span<const UploadPiece> pieces) -> Result<void> {
    for (const UploadPiece& piece : pieces) std::memcpy(at<std::byte>(piece.to), piece.from, piece.bytes);
    return success();
  });
}

Result<void> LlamaAdapters::upload(std::uint32_t slot, const LoraAdapter& adapter, const Write& write) {
  TROUPE_TRY(known(slot));
  if (states_[slot].load(std::memory_order_acquire) == State::in_table) {
    return Error{ErrorCode::slot_in_use, fmt::format("adapter slot {} is in the table: unload it first, or load into another", slot)};
  }
  if (adapter.rank() > max_rank_) {
    return Error{ErrorCode::rank_too_large,
                 fmt::format("{}: rank {}; the slots hold ranks up to {}: load the model with a larger max_lora_rank", adapter.path(),
                             adapter.rank(), max_rank_)};
  }
  states_[slot].store(State::empty, std::memory_order_release);
  std::vector<float> image(elements_);  // of the slot
  std::vector<kernels::LoraWeight> entries;
  entries.reserve(std::size_t{config_.layers} * kLoraTargets);
  std::vector<UploadPiece> pieces = {{address(weights_[slot]), image.data(), image.size() * sizeof(float)}};
  std::size_t next = 0;
  for (std::uint32_t layer = 0; layer < config_.layers; ++layer) {
    for (std::size_t i = 0; i < kLoraTargets; ++i) {
      const auto target = static_cast<LoraTarget>(i);
      const LoraShape shape = lora_shape(config_, target);
      const LoraPair& p = adapter.pair(layer, target);
      const std::size_t a_at = next, b_at = a_at + std::size_t{max_rank_} * shape.cols;
      next = b_at + std::size_t{max_rank_} * shape.rows;
      const kernels::LoraWeight& w =
          entries.emplace_back(kernels::LoraWeight{weights_[slot] + a_at, weights_[slot] + b_at, p.rank, p.scale});
      pieces.push_back({address(&table_[(layer * kLoraTargets + i) * states_.size() + slot]), &w, sizeof w});
      float *a = image.data() + a_at, *b = image.data() + b_at;
      if (p.rank == 0) continue;
      for (std::size_t k = 0; k < std::size_t{p.rank} * shape.cols; ++k) a[k] = element(p.a, k);
      for (std::uint32_t r = 0; r < shape.rows; ++r) {
        const std::uint32_t row = row_of(r, target);
        for (std::uint32_t k = 0; k < p.rank; ++k) b[std::size_t{k} * shape.rows + row] = element(p.b, std::size_t{r} * p.rank + k);
      }
    }
  }
  TROUPE_TRY(write(pieces));
  std::vector<LoraImagePair>& loaded = pairs_[slot];
  loaded.clear();
  for (const kernels::LoraWeight& w : entries) loaded.push_back({w.rank, w.scale});
  states_[slot].store(State::loaded, std::memory_order_release);
  return success();
}

Result<AdapterImage> LlamaAdapters::read(std::uint32_t slot) const {
  return read(slot, [](std::span<const DownloadPiece> pieces) -> Result<void> {
    for (const DownloadPiece& piece : pieces) std::memcpy(piece.to, at<std::byte>(piece.from), piece.bytes);
    return success();
  });
}

Result<AdapterImage> LlamaAdapters::read(std::uint32_t slot, const Read& read) const {
  TROUPE_TRY(known(slot));
  if (states_[slot].load(std::memory_order_acquire) == State::empty) {
    return Error{ErrorCode::not_found, fmt::format("adapter slot {} holds no adapter: load one first", slot)};
  }
  LoraImage image = make_lora_image(config_, pairs_[slot]);
  std::vector<float> slots(elements_);  // B lies by rank in the slot, and by row in the image
  std::vector<DownloadPiece> pieces{{slots.data(), address(weights_[slot]), slots.size() * sizeof(float)}};
  TROUPE_TRY(read(pieces));
  std::size_t next = 0;
  for (std::size_t i = 0; i < pairs_[slot].size(); ++i) {
    const auto target = static_cast<LoraTarget>(i % kLoraTargets);
    const LoraShape shape = lora_shape(config_, target);
    const std::uint32_t rank = pairs_[slot][i].rank;
    const float *a = slots.data() + next, *b = a + std::size_t{max_rank_} * shape.cols;
    next += std::size_t{max_rank_} * (std::size_t{shape.cols} + shape.rows);
    if (rank == 0) continue;
    std::memcpy(image.bytes.data() + image.places[i].a, a, std::size_t{rank} * shape.cols * sizeof(float));
    std::uint8_t* to = image.bytes.data() + image.places[i].b;
    for (std::uint32_t r = 0; r < shape.rows; ++r) {
      const std::uint32_t row = row_of(r, target);
      for (std::uint32_t k = 0; k < rank; ++k, to += sizeof(float)) std::memcpy(to, &b[std::size_t{k} * shape.rows + row], sizeof(float));
    }
  }
  return AdapterImage{std::move(image.bytes)};
}

Result<void> LlamaAdapters::show(std::uint32_t slot) {
  TROUPE_TRY(known(slot));
  if (states_[slot].load(std::memory_order_acquire) == State::empty) {
    return Error{ErrorCode::not_found, fmt::format("adapter slot {} holds no adapter: load one first", slot)};
  }
  states_[slot].store(State::in_table, std::memory_order_release);
  return success();
}

Result<void> LlamaAdapters::hide(std::uint32_t slot) {
  TROUPE_TRY(known(slot));
  states_[slot].store(State::empty, std::memory_order_release);
  return success();
}

}  // namespace troupe::device
