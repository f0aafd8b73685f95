#include "device/models/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "device/host/driver.h"
#include "device/models/gguf.h"
#include "device/models/llama.h"
#include "device/models/model_config.h"
#include "device/models/tensor_type.h"

namespace troupe::device {
namespace {

constexpr std::uint32_t kPositionsPerSequence = 512;

ModelFileInfo describe(const GgufFile& file) {
  ModelFileInfo out;
  out.path = file.path();
  out.format = fmt::format("GGUF v{}", file.version());
  std::map<std::string, std::uint32_t> types;
  for (const GgufTensor& tensor : file.tensors()) {
    std::uint64_t elements = 1;
    for (const std::uint64_t d : tensor.dims) elements *= d;
    out.parameters += elements;
    out.tensor_bytes += tensor.bytes;
    ++types[std::string(name(tensor.type))];
  }
  out.tensors_by_type.assign(types.begin(), types.end());
  return out;
}

Result<TextSide> text_of(const GgufFile& file) {
  TROUPE_TRY(auto tokenizer, Tokenizer::from_gguf(file));
  auto chat = ChatTemplate::from_gguf(file);
  auto shared = std::make_shared<const Tokenizer>(std::move(tokenizer));
  if (chat) return TextSide(std::move(shared), std::move(chat).value(), {});
  return TextSide(std::move(shared), std::nullopt, chat.error());
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

Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options) {
  TROUPE_TRY(auto opened, GgufFile::open(path));
  const auto file = std::make_shared<const GgufFile>(std::move(opened));
  TROUPE_TRY(auto config, model_config_from_gguf(*file));
  LoadedModel out;
  TROUPE_TRY(out.text, text_of(*file));
  out.file = describe(*file);
  out.driver = make_host_driver();
  LlamaOptions settings = llama_options(options, config.context);
  settings.tokens = out.text.table();
  TROUPE_TRY(out.model, LlamaModel::create(file, std::move(config), settings, *out.driver));
  return out;
}

Result<TextSide> load_text(const std::string& path) {
  TROUPE_TRY(auto file, GgufFile::open(path));
  return text_of(file);
}

}  // namespace troupe::device
