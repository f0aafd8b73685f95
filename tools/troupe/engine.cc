#include "tools/troupe/engine.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "actors/link/nodes.h"
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
  const auto hosts = static_cast<std::uint32_t>(
      std::count_if(options.devices.begin(), options.devices.end(), [](const DeviceName& device) { return !device.cuda; }));
  if (out.threads == 0 && hosts > 1) out.threads = std::max(1u, std::thread::hardware_concurrency() / hosts);
  out.kv_blocks = options.kv_blocks;
  out.block_size = options.block_size;
  out.max_batch = options.max_batch;
  out.depth = depth;
  out.prefill_stream = options.streams > 2;
  out.cublaslt = options.cublaslt;
  if (const char* const path = std::getenv("TROUPE_CUBLASLT")) out.cublaslt_path = path;
  out.max_loras = options.max_loras;
  out.max_lora_rank = options.max_lora_rank;
  return out;
}

namespace {

Result<std::unique_ptr<device::Driver>> make_driver(const DeviceName& device) {
  if (device.cuda) return device::make_cuda_driver({.index = device.index});
  return device::make_host_driver({.index = device.index});
}

// All of them compute from the files that are mapped here. drivers: those of their first lives, by device; null: made when it begins.
std::vector<ReplicaSource> sources(const CommonOptions& options, const device::LoadOptions& load,
                                   const std::shared_ptr<const device::ModelFiles>& files,
                                   std::vector<std::unique_ptr<device::Driver>> drivers) {
  std::vector<ReplicaSource> out;
  for (std::size_t i = 0; i < options.devices.size(); ++i) {
    const DeviceName& device = options.devices[i];
    ReplicaSource source;
    source.name = device.text();
    const auto first = std::make_shared<std::unique_ptr<device::Driver>>(std::move(drivers[i]));
    source.open = [device, load, files, first]() -> Result<OpenedReplica> {
      OpenedReplica opened;
      opened.driver = std::move(*first);
      if (!opened.driver) {
        TROUPE_TRY(opened.driver, make_driver(device));
      }
      TROUPE_TRY(opened.model, device::make_model(*files, load, *opened.driver));
      return opened;
    };
    out.push_back(std::move(source));
  }
  return out;
}

}  // namespace

Result<device::LoadedModel> open_model(const CommonOptions& options, std::uint32_t depth) {
  if (options.devices.size() > 1) return Error{ErrorCode::bad_request, "this command works on one device: name it by --device"};
  TROUPE_TRY(auto driver, make_driver(options.devices[0]));
  TROUPE_TRY(auto path, model_path(options));
  auto loaded = device::load_model(path, load_options(options, depth), std::move(driver));
  if (loaded) spdlog::info("loaded {}", path);
  return loaded;
}

Result<device::TextSide> open_text(const CommonOptions& options) {
  TROUPE_TRY(auto path, model_path(options));
  return device::load_text(path);
}

RuntimeOptions runtime_options(const CommonOptions& options, std::uint32_t depth) {
  RuntimeOptions out;
  out.depth = depth;
  out.max_batch = options.max_batch;
  using actors::PlacementPolicy;
  out.placement.policy = options.placement == "round-robin" ? PlacementPolicy::round_robin
                         : options.placement == "pinned"    ? PlacementPolicy::pinned
                                                            : PlacementPolicy::least_work;
  out.streams = options.streams;
  out.spill_dir = options.spill_dir;
  out.spill_limit = options.spill_limit << 20;
  out.trace.file = options.trace;
  out.trace.redact = options.trace_redact;
  out.trace.flight_bytes = static_cast<std::size_t>(options.flight) << 20;
  return out;
}

Result<DeviceReplicas> device_replicas(const CommonOptions& options, std::uint32_t depth) {
  std::vector<std::unique_ptr<device::Driver>> drivers;
  for (const DeviceName& device : options.devices) {  // one that is not there is said before a large model is read
    auto& driver = drivers.emplace_back();
    if (!device.cuda) continue;
    TROUPE_TRY(driver, make_driver(device));
  }
  TROUPE_TRY(auto path, model_path(options));
  TROUPE_TRY(auto opened, device::open_files(path));
  const auto files = std::make_shared<const device::ModelFiles>(std::move(opened));
  spdlog::info("opened {}", path);
  return DeviceReplicas{files->text, sources(options, load_options(options, depth), files, std::move(drivers))};
}

Result<Engine> start_engine(const CommonOptions& options, std::uint32_t depth, actors::SchedulerFault fault) {
  DumpOnSignal::block();
  TROUPE_TRY(auto replicas, device_replicas(options, depth));
  if (!options.nodes.empty()) {
    actors::link::LinkOptions links;
    links.silence = std::chrono::milliseconds(options.link_silence);
    links.heartbeat = links.silence / 6;
    TROUPE_TRY(auto remote, actors::link::node_sources(options.nodes, {options.cert, options.key, options.ca}, links));
    std::move(remote.begin(), remote.end(), std::back_inserter(replicas.sources));
  }
  RuntimeOptions settings = runtime_options(options, depth);
  settings.fault = fault;
  Engine engine;
  engine.text = std::move(replicas.text);
  TROUPE_TRY(engine.runtime, Runtime::start(settings, std::move(replicas.sources)));
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
