// From a model's file to what a Runtime takes: a driver, the model on it, and the text side (tokenizer, chat format).
// The one place that knows which file format and which architecture belong together.
//
// Any thread may load. A TextSide is immutable: any thread may use it, beside the runtime that runs the model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/driver.h"
#include "device/model.h"
#include "device/models/chat_template.h"
#include "device/models/model_config.h"
#include "device/models/tensor_source.h"
#include "device/models/tokenizer.h"
#include "messages/error.h"

namespace troupe::device {

struct LoadOptions {
  bool exact = false;             // activations and KV cache in 32 bits
  std::uint32_t threads = 0;      // that compute; 0 = one per CPU
  std::uint32_t kv_blocks = 0;    // 0 = 512 positions for each of max_batch sequences, and at least one whole context
  std::uint32_t block_size = 16;  // positions in a block
  std::uint32_t max_batch = 32;   // sequences in a step
  std::uint32_t step_tokens = 512;
  std::uint32_t depth = 2;      // most steps in flight
  std::uint32_t max_loras = 0;  // adapter slots
  std::uint32_t max_lora_rank = 16;
  bool prefill_stream = false;   // CUDA: LlamaOptions::prefill_stream
  std::uint32_t max_graphs = 8;  // CUDA: LlamaOptions::max_graphs
  bool cublaslt = false;         // CUDA: LlamaOptions::gemm
  std::string cublaslt_path;     // LlamaOptions::cublaslt
};

// Text to ids and back.
class TextSide {
 public:
  TextSide() = default;
  TextSide(std::shared_ptr<const Tokenizer> tokenizer, std::optional<ChatTemplate> chat, Error no_chat)
      : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)), no_chat_(std::move(no_chat)) {}

  // Special tokens are recognised unless `plain`; none is added. bad_request: invalid UTF-8, with the byte's offset.
  Result<std::vector<Token>> encode(std::string_view text, bool plain = false) const;
  // A prompt that the model is to continue as it is: encode(), behind what the model wants in front of a text.
  Result<std::vector<Token>> encode_prompt(std::string_view text) const;
  // The messages in the model's chat format, up to where the assistant's answer begins. unsupported: the model has no
  // chat format, or one that this build does not know.
  Result<std::vector<Token>> encode_chat(std::span<const ChatMessage> messages) const;
  // bad_request: an id outside the vocabulary.
  Result<std::string> decode(std::span<const Token> ids) const;
  bool has_chat() const { return chat_.has_value(); }
  Shared<TokenTable> table() const { return tokenizer_->table(); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  Error no_chat_;  // why there is no chat format
};

// What a file says about itself, for `troupe info`.
struct ModelFileInfo {
  std::string path;
  std::string format;  // "GGUF v3"; "safetensors, 2 files"
  std::uint64_t parameters = 0;
  std::uint64_t tensor_bytes = 0;
  std::vector<std::pair<std::string, std::uint32_t>> tensors_by_type;  // "Q4_1" -> how many
};

struct LoadedModel {
  std::unique_ptr<Driver> driver;  // outlives the model
  std::unique_ptr<ModelDeviceFeed> model;
  TextSide text;
  ModelFileInfo file;
};

// A model's files, open: what models on several devices share. The weights are mapped read-only, so that models on host
// devices compute from the same memory.
struct ModelFiles {
  std::shared_ptr<const TensorSource> source;
  ModelConfig config;
  TextSide text;
  ModelFileInfo file;
};

// `path`: a .gguf file, or a folder with config.json, tokenizer.json and safetensors weights.
// Errors: io_failed, not_found, bad_file, unsupported (an architecture or a format that this build does not have), each naming the
// file and the place.
Result<ModelFiles> open_files(const std::string& path);
// A model on a device that the caller made, which outlives it: the host's, or, where the driver runs kernels, CUDA's. Errors: as
// above, what the driver says, and unsupported: what the device does not do. The calling thread has bound the device.
Result<std::unique_ptr<ModelDeviceFeed>> make_model(const ModelFiles& files, const LoadOptions& options, Driver& driver);

// Both, with a host driver.
Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options = {});
// The same on a driver that the caller made.
Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options, std::unique_ptr<Driver> driver);

// Only the text side: no weights are touched.
Result<TextSide> load_text(const std::string& path);

}  // namespace troupe::device
