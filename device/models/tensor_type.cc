#include "device/models/tensor_type.h"

namespace troupe::device {

std::optional<TensorLayout> layout(TensorType type) {
  switch (type) {
    case TensorType::F32:
    case TensorType::I32:
      return TensorLayout{1, 4};
    case TensorType::F16:
    case TensorType::BF16:
    case TensorType::I16:
      return TensorLayout{1, 2};
    case TensorType::I8:
      return TensorLayout{1, 1};
    case TensorType::I64:
    case TensorType::F64:
      return TensorLayout{1, 8};
    case TensorType::Q4_0:
      return TensorLayout{32, 18};
    case TensorType::Q4_1:
      return TensorLayout{32, 20};
    case TensorType::Q5_0:
      return TensorLayout{32, 22};
    case TensorType::Q5_1:
      return TensorLayout{32, 24};
    case TensorType::Q8_0:
      return TensorLayout{32, 34};
    case TensorType::Q8_1:
      return TensorLayout{32, 36};
    case TensorType::Q2_K:
      return TensorLayout{256, 84};
    case TensorType::Q3_K:
      return TensorLayout{256, 110};
    case TensorType::Q4_K:
      return TensorLayout{256, 144};
    case TensorType::Q5_K:
      return TensorLayout{256, 176};
    case TensorType::Q6_K:
      return TensorLayout{256, 210};
    case TensorType::Q8_K:
      return TensorLayout{256, 292};
  }
  return std::nullopt;
}

const char* name(TensorType type) {
  switch (type) {
    case TensorType::F32:
      return "F32";
    case TensorType::F16:
      return "F16";
    case TensorType::Q4_0:
      return "Q4_0";
    case TensorType::Q4_1:
      return "Q4_1";
    case TensorType::Q5_0:
      return "Q5_0";
    case TensorType::Q5_1:
      return "Q5_1";
    case TensorType::Q8_0:
      return "Q8_0";
    case TensorType::Q8_1:
      return "Q8_1";
    case TensorType::Q2_K:
      return "Q2_K";
    case TensorType::Q3_K:
      return "Q3_K";
    case TensorType::Q4_K:
      return "Q4_K";
    case TensorType::Q5_K:
      return "Q5_K";
    case TensorType::Q6_K:
      return "Q6_K";
    case TensorType::Q8_K:
      return "Q8_K";
    case TensorType::I8:
      return "I8";
    case TensorType::I16:
      return "I16";
    case TensorType::I32:
      return "I32";
    case TensorType::I64:
      return "I64";
    case TensorType::F64:
      return "F64";
    case TensorType::BF16:
      return "BF16";
  }
  return "?";
}

}  // namespace troupe::device
