// Reads a LoRA adapter as PEFT writes it: a folder with adapter_config.json and adapter_model.safetensors, for a model of
// the families that ModelConfig describes. Where it adapts a matrix W, y = W x + scale * B (A x), with A [rank][cols] and
// B [rows][rank]; scale = alpha / rank, or alpha / sqrt(rank) with use_rslora. rank_pattern and alpha_pattern give a
// module its own. Format: github.com/huggingface/peft, src/peft/tuners/lora/config.py.
//
// Invariants of what is answered
//   - Every module that the configuration targets has both matrices, in F32, F16 or BF16, of the model's shapes and of
//     the rank that the configuration says; the file holds nothing else.
//   - What changes the arithmetic and is not done here (DoRA, biases, modules_to_save, ...) is refused by name: so is
//     every field that is not known and says anything but null, false or empty.
//   - Rows of B for q and k are as transformers has them (RopePairs::halves), whatever the model's file has.
//
// Immutable: any thread may read. The files must not be truncated while the adapter is open.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/models/model_config.h"
#include "device/models/safetensors.h"
#include "kernels/kernels.h"
#include "messages/error.h"

namespace troupe::device {

enum class LoraTarget : std::uint8_t { q, k, v, o, gate, up, down };
inline constexpr std::size_t kLoraTargets = 7;
const char* name(LoraTarget target);  // "q_proj"

// Rows and columns of the matrix that a target adapts.
struct LoraShape {
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
};
LoraShape lora_shape(const ModelConfig& config, LoraTarget target);
// Recurrent layers have no attention.
bool has_target(const ModelConfig& config, std::uint32_t layer, LoraTarget target);

struct LoraPair {
  kernels::Weight a;       // rank x cols
  kernels::Weight b;       // rows x rank; whole rows, but rank need not be a multiple of anything
  std::uint32_t rank = 0;  // 0: this matrix is not adapted
  float scale = 0.0f;
};

class LoraAdapter {
 public:
  // not_found: no folder, or no such file or field in it; bad_file, unsupported: name the file, the place and what was expected.
  static Result<LoraAdapter> open(const std::string& folder, const ModelConfig& model);
  // What adapter_image() wrote, for a model with the same dimensions; anybody may have sent it. `bytes` must outlive the adapter.
  // bad_file: names what is wrong.
  static Result<LoraAdapter> from_image(std::span<const std::uint8_t> bytes, const std::string& name, const ModelConfig& model);
  // The two files' bytes; `weights` must outlive the adapter. `name` stands for the folder in errors.
  static Result<LoraAdapter> parse(std::string_view config, std::span<const std::byte> weights, const std::string& name,
                                   const ModelConfig& model);

  const std::string& path() const { return path_; }
  std::uint32_t rank() const { return rank_; }  // the largest of any module
  std::uint32_t layers() const { return static_cast<std::uint32_t>(layers_.size()); }
  const LoraPair& pair(std::uint32_t layer, LoraTarget target) const { return layers_[layer][static_cast<std::size_t>(target)]; }

 private:
  LoraAdapter() = default;
  explicit LoraAdapter(SafetensorsModel tensors) : tensors_(std::move(tensors)) {}
  static Result<LoraAdapter> make(std::string_view config, SafetensorsModel tensors, const std::string& name, const ModelConfig& model);

  std::string path_;
  std::optional<SafetensorsModel> tensors_;  // owns what the pairs point to, if they came from files
  std::uint32_t rank_ = 0;
  std::vector<std::array<LoraPair, kLoraTargets>> layers_;
};

}  // namespace troupe::device
