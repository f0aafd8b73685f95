// Where a model's tensors come from, whatever the file format: GgufFile and SafetensorsModel.
//
// Invariants
//   - Names are GGUF's ("blk.0.attn_q.weight"); a source of another format maps its own to them.
//   - Values are as the file stores them; nothing is permuted or converted. That matters for the rows of attn_q and
//     attn_k: RoPE turns pairs of a head's elements, and formats differ in where a pair's halves lie (RopePairs in
//     model_config.h says where for a given file). A loader that has one order brings the rows, and with them the
//     biases and the gains of q/k norms, into it: whole rows move, so stored blocks stay as they are.
//   - Norms and biases may be stored in 16 bits: a loader that wants F32 converts them.
//
// Immutable: any thread may read. Tensors are views that live as long as the source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/models/tensor_type.h"

namespace troupe::device {

struct StoredTensor {
  std::string_view name;
  TensorType type = TensorType::F32;
  std::vector<std::uint64_t> dims;  // none 0; dims[0] runs fastest, and is a multiple of the type's block
  const std::byte* data = nullptr;  // aligned to the type's elements at least
  std::size_t bytes = 0;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual const StoredTensor* tensor(std::string_view name) const = 0;  // null: none of that name
  virtual const std::string& path() const = 0;                          // of the file or folder, for errors

 protected:
  TensorSource() = default;
  TensorSource(const TensorSource&) = default;
  TensorSource(TensorSource&&) noexcept = default;
  TensorSource& operator=(const TensorSource&) = default;
  TensorSource& operator=(TensorSource&&) noexcept = default;
};

}  // namespace troupe::device
