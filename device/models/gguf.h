// Reads a GGUF file, version 2 or 3 (little-endian): metadata and tensors, where they lie in the file.
// Format: github.com/ggml-org/ggml, docs/gguf.md.
//
// Invariants
//   - Every offset, count and length was checked against the file when it was opened: no getter reads past the end,
//     and no memory is set aside for a count that the file's size does not bear out.
//   - Names and keys are unique, tensors are aligned, do not overlap and lie inside the file.
//   - Views point into the mapping: they live as long as the GgufFile (moving it keeps them valid).
//
// Immutable after open: any thread may read. The file must not be truncated while it is mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/models/tensor_source.h"
#include "messages/error.h"

namespace troupe::device {

using GgufTensor = StoredTensor;  // 1 to 4 dims; data is aligned as the file says (32 by default) from the start of the file

class GgufFile final : public TensorSource {
 public:
  // io_failed: cannot be opened or mapped. bad_file, unsupported: names the file, the place and what was expected.
  static Result<GgufFile> open(const std::string& path);
  // The same over bytes that the caller keeps alive; `name` stands for the path in errors.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, std::string name);

  GgufFile(GgufFile&&) noexcept = default;
  GgufFile& operator=(GgufFile&&) noexcept = default;
  ~GgufFile() override = default;

  const std::string& path() const override { return name_; }
  std::uint32_t version() const { return version_; }

  // not_found: no such key. bad_file: the value has another type, or does not fit.
  bool has(std::string_view key) const { return find(key) != nullptr; }
  Result<std::uint64_t> get_uint(std::string_view key) const;  // any integer type, not negative
  Result<double> get_float(std::string_view key) const;        // float32 or float64
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;  // bytes as they are, UTF-8 or not
  Result<std::vector<std::string_view>> get_strings(std::string_view key) const;
  Result<std::vector<std::int64_t>> get_ints(std::string_view key) const;
  Result<std::vector<float>> get_floats(std::string_view key) const;
  std::vector<std::string> keys() const;  // in the file's order

  const GgufTensor* tensor(std::string_view name) const override;
  std::span<const GgufTensor> tensors() const { return tensors_; }  // in the file's order

 private:
  // A metadata entry. `at` is where its value (of an array: the first element) begins.
  struct Value {
    std::string_view key;
    std::uint32_t type = 0;  // of the value; of an array: its elements'
    bool is_array = false;
    std::uint64_t count = 1;
    std::uint64_t at = 0;
  };
  friend class GgufReader;

  GgufFile() = default;
  const Value* find(std::string_view key) const;
  Result<const Value*> want(std::string_view key, bool array, const char* what) const;
  Error wrong_type(const Value& v, const char* what) const;

  std::shared_ptr<const std::byte> mapping_;  // null after parse()
  std::string name_;
  std::span<const std::byte> bytes_;
  std::uint32_t version_ = 0;
  std::vector<Value> values_;                 // in the file's order
  std::vector<std::uint32_t> values_by_key_;  // indices, sorted by key
  std::vector<GgufTensor> tensors_;
  std::vector<std::uint32_t> tensors_by_name_;
};

}  // namespace troupe::device
