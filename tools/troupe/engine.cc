#include "tools/troupe/engine.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <utility>

#include "device/cuda/driver.h"
#include "device/host/driver.h"

namespace troupe::tools {
namespace {

Result<std::string> model_path(const CommonOptions& options) {
  if (!options.model.empty()) return options.model;
  const std::string path = default_model_path();
  std::error_code error;
  if (std::filesystem::exists(path, error)) return path;
  return Error{ErrorCode::io_failed,
               fmt::format("the default model is not at {}: run `tools/dev setup`, or name a GGUF file by --model", path)};
}

}  // namespace

device::LoadOptions load_options(const CommonOptions& options, std::uint32_t depth) {
  device::LoadOptions out;
  out.exact = options.exact;
  out.threads = options.threads;
  out.kv_blocks = options.kv_blocks;
  out.block_size = options.block_size;
  out.max_batch = options.max_batch;
  out.depth = depth;
  out.max_loras = options.max_loras;
  out.max_lora_rank = options.max_lora_rank;
  return out;
}

Result<device::LoadedModel> open_model(const CommonOptions& options, std::uint32_t depth) {
  auto driver = device::make_host_driver();
  if (options.cuda) {
    TROUPE_TRY(driver, device::make_cuda_driver({.index = *options.cuda}));
  }
  TROUPE_TRY(auto path, model_path(options));
  auto loaded = device::load_model(path, load_options(options, depth), std::move(driver));
  if (loaded) spdlog::info("loaded {}", path);
  return loaded;
}

Result<device::TextSide> open_text(const CommonOptions& options) {
  TROUPE_TRY(auto path, model_path(options));
  return device::load_text(path);
}

Result<Engine> start_engine(const CommonOptions& options, std::uint32_t depth, actors::SchedulerFault fault) {
  DumpOnSignal::block();
  TROUPE_TRY(auto loaded, open_model(options, depth));
  RuntimeOptions settings;
  settings.depth = depth;
  settings.max_batch = options.max_batch;
  settings.fault = fault;
  settings.spill_dir = options.spill_dir;
  settings.spill_limit = options.spill_limit << 20;
  settings.trace.file = options.trace;
  settings.trace.redact = options.trace_redact;
  settings.trace.flight_bytes = static_cast<std::size_t>(options.flight) << 20;
  Engine engine;
  engine.text = std::move(loaded.text);
  TROUPE_TRY(engine.runtime, Runtime::start(settings, std::move(loaded.driver), std::move(loaded.model)));
  engine.dump = std::make_unique<DumpOnSignal>(*engine.runtime);
  return engine;
}

Result<std::vector<Token>> prompt_ids(const device::TextSide& text, const RequestLine& line) {
  const auto placed = [&](Error error) {
    error.what = line.place + ": " + error.what;
    return error;
  };
  if (const auto* ids = std::get_if<PromptIds>(&line.prompt)) return *ids;
  if (const auto* prompt = std::get_if<PromptText>(&line.prompt)) {
    auto ids = text.encode_prompt(*prompt);
    if (!ids) return placed(ids.error());
    return ids;
  }
  std::vector<device::ChatMessage> messages;
  for (const PromptMessage& m : std::get<PromptMessages>(line.prompt)) messages.push_back({m.role, m.content});
  auto ids = text.encode_chat(messages);
  if (!ids) return placed(ids.error());
  return ids;
}

}  // namespace troupe::tools
