// troupe info: the model, the device, the formats, and what the CPU offers, as one JSON object.
#include <boost/json.hpp>

#include <thread>

#include "tools/troupe/commands.h"
#include "tools/troupe/engine.h"
#include "tools/troupe/output.h"

namespace troupe::tools {
namespace {

namespace json = boost::json;

json::object describe(const device::ModelFileInfo& file) {
  json::object types;
  for (const auto& [type, count] : file.tensors_by_type) types[type] = count;
  return {{"path", file.path},
          {"format", file.format},
          {"parameters", file.parameters},
          {"tensor_bytes", file.tensor_bytes},
          {"tensors", std::move(types)}};
}

json::object describe(const ModelInfo& info) {
  return {{"name", info.name},
          {"architecture", info.architecture},
          {"arithmetic", info.arithmetic_id},
          {"layers", info.n_layers},
          {"vocabulary", info.vocab_size},
          {"context", info.context_length},
          {"eos_ids", json::array(info.eos_ids.begin(), info.eos_ids.end())}};
}

json::object describe_limits(const ModelInfo& info) {
  return {{"block_size", info.block_size},
          {"kv_blocks", info.kv_blocks},
          {"slots", info.n_slots},
          {"max_rows", info.max_rows},
          {"max_step_tokens", info.max_step_tokens},
          {"max_logits_rows", info.max_logits_rows},
          {"max_depth", info.max_depth},
          {"device_token_feed", info.supports_device_token_feed}};
}

json::object describe_cpu() {
  json::object out{{"threads", std::thread::hardware_concurrency()}};
#if defined(__x86_64__)
  out["sse4.1"] = __builtin_cpu_supports("sse4.1") != 0;
  out["avx2"] = __builtin_cpu_supports("avx2") != 0;
  out["fma"] = __builtin_cpu_supports("fma") != 0;
  out["avx512f"] = __builtin_cpu_supports("avx512f") != 0;
  out["avx512bw"] = __builtin_cpu_supports("avx512bw") != 0;
  out["avx512vnni"] = __builtin_cpu_supports("avx512vnni") != 0;
  out["avx512bf16"] = __builtin_cpu_supports("avx512bf16") != 0;
#endif
  return out;
}

// An object with one member per line.
std::string lines(const json::object& object) {
  std::string out = "{";
  for (const auto& [key, value] : object) out += (out.size() > 1 ? ",\n \"" : "\n \"") + std::string(key) + "\": " + json::serialize(value);
  return out + "\n}\n";
}

}  // namespace

int run_info(const Command& self, const std::vector<std::string>& args) {
  auto parsed = parse_command_line(self, args, boost::program_options::options_description("Options of info"), 0);
  if (!parsed) return fail(self, parsed.error(), kExitUsage);
  if (parsed.value().help) return kExitOk;
  auto loaded = open_model(parsed.value().common, parsed.value().common.depth);
  if (!loaded) return fail(self, loaded.error(), kExitStart);
  const json::object out{{"file", describe(loaded.value().file)},
                         {"model", describe(loaded.value().model->info())},
                         {"chat", loaded.value().text.has_chat()},
                         {"device", loaded.value().driver->name()},
                         {"limits", describe_limits(loaded.value().model->info())},
                         {"formats", json::array{"GGUF: F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q4_K Q6_K", "safetensors folder: F32 F16 BF16"}},
                         {"cpu", describe_cpu()}};
  const auto written = write_all(1, lines(out));
  return written ? kExitOk : fail(self, written.error(), kExitClosed);
}

}  // namespace troupe::tools
