#include "device/models/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <thread>
#include <utility>

#include "device/host/driver.h"
#include "device/models/gguf.h"
#include "device/models/json_fields.h"
#include "device/models/llama.h"
#include "device/models/llama_cuda.h"
#include "device/models/model_config.h"
#include "device/models/safetensors.h"
#include "device/models/tensor_source.h"
#include "device/models/tensor_type.h"
#include "device/models/tokenizer_json.h"

namespace troupe::device {
namespace {

constexpr std::uint32_t kPositionsPerSequence = 512;

ModelFileInfo describe(const std::string& path, std::string format, std::span<const StoredTensor> tensors) {
  ModelFileInfo out;
  out.path = path;
  out.format = std::move(format);
  std::map<std::string, std::uint32_t> types;
  for (const StoredTensor& tensor : tensors) {
    std::uint64_t elements = 1;
    for (const std::uint64_t d : tensor.dims) elements *= d;
    out.parameters += elements;
    out.tensor_bytes += tensor.bytes;
    ++types[std::string(name(tensor.type))];
  }
  out.tensors_by_type.assign(types.begin(), types.end());
  return out;
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

TextSide text_side(Tokenizer tokenizer, Result<ChatTemplate> chat) {
  auto shared = std::make_shared<const Tokenizer>(std::move(tokenizer));
  if (chat) return TextSide(std::move(shared), std::move(chat).value(), {});
  return TextSide(std::move(shared), std::nullopt, chat.error());
}

Result<TextSide> text_of(const GgufFile& file) {
  TROUPE_TRY(auto tokenizer, Tokenizer::from_gguf(file));
  return text_side(std::move(tokenizer), ChatTemplate::from_gguf(file));
}

// Of a folder. `vocab` is the model's.
Result<TextSide> text_of(const std::string& folder, std::uint32_t vocab) {
  TROUPE_TRY(auto files, read_tokenizer_files(folder));
  files.vocab = vocab;
  TROUPE_TRY(auto tokenizer, tokenizer_from_json(files));
  return text_side(std::move(tokenizer), chat_template_from_json(files));
}

Result<ModelConfig> config_of(const std::string& folder) {
  constexpr std::size_t kMostBytes = 1u << 20;
  auto config = read_text_file(folder + "/config.json", kMostBytes);
  if (!config && config.error().code == ErrorCode::not_found) {
    return Error{ErrorCode::not_found, folder +
                                           ": no config.json; a .gguf file, or a folder with config.json, tokenizer.json and "
                                           "safetensors weights, is expected"};
  }
  if (!config) return config.error();
  auto generation = read_text_file(folder + "/generation_config.json", kMostBytes);
  if (!generation && generation.error().code != ErrorCode::not_found) return generation.error();
  return model_config_from_json(config.value(), generation ? generation.value() : "", folder);
}

std::uint32_t blocks_for(std::uint32_t positions, std::uint32_t block_size) { return (positions + block_size - 1) / block_size; }

LlamaOptions llama_options(const LoadOptions& options, std::uint32_t context) {
  LlamaOptions out;
  out.exact = options.exact;
  out.threads = options.threads != 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  out.block_size = options.block_size;
  out.kv_blocks = options.kv_blocks;
  if (out.kv_blocks == 0) {
    const std::uint32_t whole = blocks_for(context, options.block_size);
    out.kv_blocks = std::max(whole, options.max_batch * blocks_for(std::min(context, kPositionsPerSequence), options.block_size));
  }
  out.max_rows = options.max_batch;
  out.max_step_tokens = std::max(options.step_tokens, options.max_batch);
  out.max_logits_rows = options.max_batch;
  out.n_slots = 2 * options.max_batch;  // a slot that was released is fenced until the steps in flight have settled (R3)
  out.max_depth = options.depth;
  // depth + 1 versions of recurrent state for each sequence, for a few more that are at their fence, and snapshots.
  out.ssm_states = (options.max_batch + std::min(options.max_batch, 8u)) * (options.depth + 1) + options.max_batch;
  out.max_loras = options.max_loras;
  out.max_lora_rank = options.max_lora_rank;
  out.prefill_stream = options.prefill_stream;
  out.max_graphs = options.max_graphs;
  out.gemm = options.cublaslt ? Gemm::cublaslt : Gemm::own;
  out.cublaslt = options.cublaslt_path;
  return out;
}

}  // namespace

Result<std::vector<Token>> TextSide::encode(std::string_view text, bool plain) const { return tokenizer_->encode(text, !plain); }

Result<std::vector<Token>> TextSide::encode_prompt(std::string_view text) const {
  TROUPE_TRY(auto ids, tokenizer_->encode(text, true));
  ids.insert(ids.begin(), tokenizer_->bos_ids().begin(), tokenizer_->bos_ids().end());
  return ids;
}

Result<std::vector<Token>> TextSide::encode_chat(std::span<const ChatMessage> messages) const {
  if (!chat_) return no_chat_;
  TROUPE_TRY(auto text, chat_->render(messages));
  return tokenizer_->encode(text, true);
}

Result<std::string> TextSide::decode(std::span<const Token> ids) const {
  for (const Token id : ids) {
    if (id < tokenizer_->vocab_size()) continue;
    return Error{ErrorCode::bad_request, fmt::format("id {} is outside the vocabulary of {}", id, tokenizer_->vocab_size())};
  }
  return tokenizer_->decode(ids);
}

namespace {

Result<ModelFiles> open_gguf(const std::string& path) {
  TROUPE_TRY(auto opened, GgufFile::open(path));
  const auto file = std::make_shared<const GgufFile>(std::move(opened));
  ModelFiles out;
  out.source = file;
  TROUPE_TRY(out.config, model_config_from_gguf(*file));
  TROUPE_TRY(out.text, text_of(*file));
  out.file = describe(path, fmt::format("GGUF v{}", file->version()), file->tensors());
  return out;
}

Result<ModelFiles> open_folder(const std::string& path) {
  ModelFiles out;
  TROUPE_TRY(out.config, config_of(path));
  TROUPE_TRY(auto opened, SafetensorsModel::open(path));
  const auto weights = std::make_shared<const SafetensorsModel>(std::move(opened));
  out.source = weights;
  TROUPE_TRY(check_tensors(*weights, out.config));
  TROUPE_TRY(out.text, text_of(path, out.config.vocab));
  out.file = describe(path, fmt::format("safetensors, {} file{}", weights->files(), weights->files() == 1 ? "" : "s"), weights->tensors());
  return out;
}

}  // namespace

Result<ModelFiles> open_files(const std::string& path) { return is_folder(path) ? open_folder(path) : open_gguf(path); }

Result<std::unique_ptr<ModelDeviceFeed>> make_model(const ModelFiles& files, const LoadOptions& options, Driver& driver) {
  LlamaOptions settings = llama_options(options, files.config.context);
  settings.tokens = files.text.table();
  std::unique_ptr<ModelDeviceFeed> model;
  if (driver.runs_kernels()) {
    TROUPE_TRY(model, LlamaCudaModel::create(files.source, files.config, settings, driver));
  } else if (options.cublaslt) {
    return Error{ErrorCode::unsupported, "cublaslt is for CUDA devices, and this is " + driver.name() + ": leave it out"};
  } else {
    TROUPE_TRY(model, LlamaModel::create(files.source, files.config, settings, driver));
  }
  return model;
}

Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options) {
  return load_model(path, options, make_host_driver());
}

Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options, std::unique_ptr<Driver> driver) {
  TROUPE_TRY(auto files, open_files(path));
  LoadedModel out;
  TROUPE_TRY(out.model, make_model(files, options, *driver));
  out.driver = std::move(driver);
  out.text = std::move(files.text);
  out.file = std::move(files.file);
  return out;
}

Result<TextSide> load_text(const std::string& path) {
  if (is_folder(path)) {
    TROUPE_TRY(auto config, config_of(path));
    return text_of(path, config.vocab);
  }
  TROUPE_TRY(auto file, GgufFile::open(path));
  return text_of(file);
}

}  // namespace troupe::device
