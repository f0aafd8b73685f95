// A model of random weights in BF16, of the shape of a real one: for benchmarks where no real one is at hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "messages/error.h"

namespace troupe::tools {

struct ModelShape {
  std::uint32_t width = 0, ffn = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0, context = 0;
};

// "llama-1b": the shape of Llama 3.2 1B (2.5 GB). "tiny": for tests.
std::optional<ModelShape> shape_named(std::string_view name);

// Writes config.json and model.safetensors into the folder, which is made, and beside them the tokenizer of another model's folder,
// with tokens that no text has for the rest of the vocabulary. The same seed gives the same files. Errors: io_failed; bad_file: the
// tokenizer is not there, or none.
Result<void> write_random_model(const ModelShape& shape, const std::string& folder, const std::string& tokenizer_from,
                                std::uint64_t seed = 1);

}  // namespace troupe::tools
