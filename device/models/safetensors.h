// Reads safetensors weights: one file, or a folder with model.safetensors or with model.safetensors.index.json and its
// shards. Format: github.com/huggingface/safetensors, README.md: u64 size of the header, the header (JSON), the tensors.
//
// Invariants
//   - Every tensor lies inside its file, aligned to its elements, with as many bytes as its shape and type say; the
//     tensors of a file cover what follows its header without a gap or an overlap.
//   - Memory is set aside only in proportion to headers, and those to the files: a header has at most 32 MiB.
//   - Tensors carry GGUF's names (see tensor_source.h; one whose name is not known keeps its own), and dims in GGUF's
//     order: the last of the file's shape first. Rows of q and k are as transformers has them: RopePairs::halves.
//   - Views point into the mappings: they live as long as the SafetensorsModel (moving it keeps them valid).
//
// Immutable after open: any thread may read. The files must not be truncated while they are mapped.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/models/tensor_source.h"
#include "messages/error.h"

namespace troupe::device {

// "model.layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight"; unknown names as they are.
std::string gguf_tensor_name(std::string_view name);

class SafetensorsModel final : public TensorSource {
 public:
  // A file, or a folder. not_found: a folder without weights; io_failed: a file that cannot be mapped; bad_file, unsupported:
  // names the file, the place and what was expected.
  static Result<SafetensorsModel> open(const std::string& path);
  // One file's bytes, which the caller keeps alive; `name` stands for the path in errors.
  static Result<SafetensorsModel> parse(std::span<const std::byte> bytes, std::string name);

  SafetensorsModel(SafetensorsModel&&) noexcept = default;
  SafetensorsModel& operator=(SafetensorsModel&&) noexcept = default;
  ~SafetensorsModel() override = default;

  const std::string& path() const override { return path_; }
  const StoredTensor* tensor(std::string_view name) const override;
  std::span<const StoredTensor> tensors() const { return tensors_; }  // by name
  std::size_t files() const { return files_; }

 private:
  SafetensorsModel() = default;
  Result<void> add_file(std::span<const std::byte> bytes, const std::string& file);
  Result<void> add_mapped(const std::string& file);
  Result<void> add_shards(const std::string& folder, const std::string& index);
  Result<void> sort();

  std::string path_;
  std::size_t files_ = 0;
  std::vector<std::shared_ptr<const std::byte>> mappings_;  // none after parse()
  std::vector<std::unique_ptr<const std::string>> names_;   // what the tensors' names point to
  std::vector<StoredTensor> tensors_;
};

}  // namespace troupe::device
