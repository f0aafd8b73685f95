// Element types of stored tensors, and how they are packed. Thread-free: values only.
#pragma once

#include <cstdint>
#include <optional>

namespace troupe::device {

// The numbers are ggml's. A type that is not listed is refused as unsupported.
enum class TensorType : std::uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q8_1 = 9,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  Q8_K = 15,
  I8 = 24,
  I16 = 25,
  I32 = 26,
  I64 = 27,
  F64 = 28,
  BF16 = 30,
};

struct TensorLayout {
  std::uint32_t block;        // elements in a block, along dims[0]
  std::uint32_t block_bytes;  // and its bytes
};

std::optional<TensorLayout> layout(TensorType type);  // none: not a type of ours
const char* name(TensorType type);                    // "Q4_1"; "?" if it is none of ours

}  // namespace troupe::device
