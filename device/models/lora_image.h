// An adapter as one run of bytes, as replicas hand it to each other (AdapterImage): everything that LoraAdapter says, in 32 bits, and
// nothing of where it lay. Little-endian:
//   u32 magic "TLIM", u32 version, u32 layers, width, ffn, query rows, query width, key and value width of the model;
//   for each layer and target {u32 rank, f32 scale}; rank 0: not adapted;
//   for each of those that is adapted f32 A [rank][cols], f32 B [rows][rank], rows of B as transformers has them.
// LoraAdapter::from_image() (lora.h) reads it back.
//
// Values only: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/models/lora.h"

namespace troupe::device {

struct LoraImagePair {
  std::uint32_t rank = 0;
  float scale = 0.0f;
};
// Of one matrix, inside of an image.
struct LoraImagePlace {
  std::size_t a = 0, b = 0;  // bytes from the start; 0, 0: not adapted
};

// An image with room for the matrices, all zero, and where they go; `pairs` and `places` are [layers][targets].
struct LoraImage {
  std::vector<std::uint8_t> bytes;
  std::vector<LoraImagePlace> places;
};
LoraImage make_lora_image(const ModelConfig& model, const std::vector<LoraImagePair>& pairs);

}  // namespace troupe::device
