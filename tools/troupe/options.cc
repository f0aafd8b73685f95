#include "tools/troupe/options.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/positional_options.hpp>
#include <boost/program_options/value_semantic.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "tools/troupe/output.h"

namespace troupe::tools {
namespace {

namespace po = boost::program_options;

constexpr std::size_t kMostDevices = 64;

// A count, checked by hand: Boost's conversion takes "-1" for an unsigned as 4294967295.
std::uint32_t to_count(const po::variables_map& values, const char* name, std::uint32_t low, std::uint32_t high) {
  const auto n = values[name].as<std::int64_t>();
  if (n < low || n > high) throw po::error(fmt::format("--{} must be between {} and {}, and is {}", name, low, high, n));
  return static_cast<std::uint32_t>(n);
}

po::options_description common_options() {
  po::options_description out("Options of every command");
  auto add = out.add_options();
  add("help,h", "print this");
  add("model,m", po::value<std::string>()->value_name("FILE"),
      "a GGUF file, or a folder with safetensors (default: the model that tools/dev setup fetches)");
  add("device", po::value<std::string>()->default_value("host:0")->value_name("DEVICE"),
      "host:0, or cuda:N for the N-th NVIDIA device, from 0");
  add("devices", po::value<std::string>()->value_name("DEVICE,..."), "several, each with the model: host:0,host:1,cuda:0");
  add("placement", po::value<std::string>()->default_value("least-work")->value_name("POLICY"),
      "which of several devices a request goes to: least-work, round-robin, or pinned by its id");
  add("depth", po::value<std::int64_t>()->default_value(2)->value_name("N"), "most steps in flight; 1 = each settles before the next");
  add("max-batch", po::value<std::int64_t>()->default_value(32)->value_name("N"), "most requests that run at a time");
  add("kv-blocks", po::value<std::int64_t>()->default_value(0)->value_name("N"), "blocks of the KV cache; 0 = chosen by max-batch");
  add("block-size", po::value<std::int64_t>()->default_value(16)->value_name("N"), "positions in a block");
  add("threads", po::value<std::int64_t>()->default_value(0)->value_name("N"),
      "threads that compute, of each host device; 0 = one per CPU, shared among them");
  add("exact", po::bool_switch(), "activations and KV cache in 32 bits");
  add("gemm", po::value<std::string>()->default_value("own")->value_name("WHOSE"),
      "on CUDA, products of BF16 weights: own, or cublaslt, which is NVIDIA's, where it is found; with it, what is generated may depend on "
      "the batch");
  add("streams", po::value<std::int64_t>()->default_value(2)->value_name("N"),
      "of a CUDA device: 2 = one for copies of spilled KV, beside the steps; 3 = one for prefill too, beside decoding; 1 = all on one");
  add("max-loras", po::value<std::int64_t>()->default_value(0)->value_name("N"), "LoRA adapters at a time");
  add("max-lora-rank", po::value<std::int64_t>()->default_value(16)->value_name("N"), "largest rank of an adapter");
  add("spill-dir", po::value<std::string>()->value_name("FOLDER"),
      "save what preempted requests had computed in files there (default: compute it again)");
  add("spill-limit", po::value<std::int64_t>()->default_value(4096)->value_name("MIB"), "most that lies in it at a time");
  add("flight", po::value<std::int64_t>()->default_value(64)->value_name("MIB"),
      "memory for the last messages, which are written to a file when the device is lost or on demand; 0 = none");
  add("log-level", po::value<std::string>()->default_value("warning")->value_name("LEVEL"), "trace, debug, info, warning, error or off");
  return out;
}

Result<void> set_log_level(const std::string& level) {
  constexpr std::array kLevels = {"trace", "debug", "info", "warning", "error", "off"};
  bool known = false;
  for (const char* l : kLevels) known = known || level == l;
  if (!known) return Error{ErrorCode::bad_request, "--log-level must be trace, debug, info, warning, error or off, and is " + level};
  auto logger = std::make_shared<spdlog::logger>("troupe", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
  return success();
}

DeviceName to_device(const std::string& text, const char* option) {
  DeviceName out;
  for (const bool cuda : {false, true}) {
    const std::string_view kind = cuda ? "cuda:" : "host:";
    if (!text.starts_with(kind)) continue;
    const char* begin = text.data() + kind.size();
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(begin, end, out.index);
    out.cuda = cuda;
    if (error == std::errc() && rest == end && begin != end) return out;
  }
  throw po::error(fmt::format("--{} must be host:N or cuda:N with a number, such as host:0, and is {}", option, text));
}

std::vector<DeviceName> to_devices(const po::variables_map& values) {
  if (values.count("devices") == 0) return {to_device(values["device"].as<std::string>(), "device")};
  if (!values["device"].defaulted()) throw po::error("--device and --devices say the same: use one of them");
  std::vector<DeviceName> out;
  std::stringstream list(values["devices"].as<std::string>());
  for (std::string one; std::getline(list, one, ',');) {
    const DeviceName device = to_device(one, "devices");
    if (std::find(out.begin(), out.end(), device) != out.end()) throw po::error(fmt::format("--devices names {} twice", one));
    out.push_back(device);
  }
  if (out.empty() || out.size() > kMostDevices) throw po::error(fmt::format("--devices must name 1 to {} devices", kMostDevices));
  return out;
}

std::vector<std::string> to_list(const std::string& text) {
  std::vector<std::string> out;
  std::stringstream list(text);
  for (std::string one; std::getline(list, one, ',');) out.push_back(one);
  return out;
}

CommonOptions to_common(const po::variables_map& values) {
  CommonOptions out;
  const auto text = [&](const char* name) { return values.count(name) == 0 ? std::string() : values[name].as<std::string>(); };
  if (values.count("model") != 0) out.model = values["model"].as<std::string>();
  out.devices = to_devices(values);
  out.nodes = to_list(text("nodes"));
  if (!out.nodes.empty() && values["device"].defaulted() && values.count("devices") == 0) out.devices.clear();
  out.cert = text("cert");
  out.key = text("key");
  out.ca = text("ca");
  if (values.count("link-silence") != 0) out.link_silence = to_count(values, "link-silence", 10, 3'600'000);
  out.placement = values["placement"].as<std::string>();
  if (out.placement != "least-work" && out.placement != "round-robin" && out.placement != "pinned") {
    throw po::error("--placement must be least-work, round-robin or pinned, and is " + out.placement);
  }
  out.depth = to_count(values, "depth", 1, 16);
  out.max_batch = to_count(values, "max-batch", 1, 1024);
  out.kv_blocks = to_count(values, "kv-blocks", 0, 1u << 24);
  out.block_size = to_count(values, "block-size", 1, 1024);
  out.threads = to_count(values, "threads", 0, 256);
  out.exact = values["exact"].as<bool>();
  const auto& gemm = values["gemm"].as<std::string>();
  if (gemm != "own" && gemm != "cublaslt") throw po::error("--gemm must be own or cublaslt, and is " + gemm);
  out.cublaslt = gemm == "cublaslt";
  const bool any_cuda = std::any_of(out.devices.begin(), out.devices.end(), [](const DeviceName& d) { return d.cuda; });
  if (out.cublaslt && !any_cuda) throw po::error("--gemm cublaslt is for --device cuda:N");
  out.streams = to_count(values, "streams", 1, 3);
  if (out.streams == 3 && !any_cuda) throw po::error("--streams 3 is for --device cuda:N: on the host, steps share the CPUs");
  out.max_loras = to_count(values, "max-loras", 0, 1024);
  out.max_lora_rank = to_count(values, "max-lora-rank", 1, 4096);
  if (values.count("spill-dir") != 0) out.spill_dir = values["spill-dir"].as<std::string>();
  out.spill_limit = to_count(values, "spill-limit", 0, 1u << 24);
  out.flight = to_count(values, "flight", 0, 1u << 14);
  out.log_level = values["log-level"].as<std::string>();
  if (values.count("trace") != 0) out.trace = values["trace"].as<std::string>();
  if (values.count("trace-redact") != 0) out.trace_redact = values["trace-redact"].as<bool>();
  return out;
}

}  // namespace

Result<Parsed> parse_command_line(const Command& command, const std::vector<std::string>& args, const po::options_description& own,
                                  std::size_t n_positional, const po::options_description& hidden) {
  const po::options_description common = common_options();
  po::options_description visible;
  visible.add(own).add(common);
  po::options_description rest;
  rest.add_options()("positional", po::value<std::vector<std::string>>());
  po::options_description all;
  all.add(own).add(common).add(hidden).add(rest);
  po::positional_options_description positional;
  positional.add("positional", -1);
  Parsed out;
  try {
    const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(args).options(all).positional(positional).style(style).run(), out.values);
    if (out.values.count("help") != 0) {
      std::ostringstream text;
      text << "usage: troupe " << command.usage << "\n\n" << command.summary << "\n\n" << visible << '\n' << command.help << '\n';
      TROUPE_TRY(write_all(1, text.str()));
      out.help = true;
      return out;
    }
    po::notify(out.values);  // what is required must be there now
    out.common = to_common(out.values);
  } catch (const std::exception& e) {
    return Error{ErrorCode::bad_request, fmt::format("{}; see `troupe {} --help`", e.what(), command.name)};
  }
  if (out.values.count("positional") != 0) out.positional = out.values["positional"].as<std::vector<std::string>>();
  if (out.positional.size() != n_positional) {
    return Error{ErrorCode::bad_request,
                 fmt::format("{} arguments where {} belong; usage: troupe {}", out.positional.size(), n_positional, command.usage)};
  }
  TROUPE_TRY(set_log_level(out.common.log_level));
  return out;
}

void add_trace_options(po::options_description& own) {
  auto add = own.add_options();
  add("trace", po::value<std::string>()->value_name("FILE"), "record every message there, for `troupe trace`");
  add("trace-redact", po::bool_switch(), "without prompts, token ids and texts");
}

void add_certificate_options(po::options_description& own) {
  auto add = own.add_options();
  add("cert", po::value<std::string>()->value_name("FILE"), "PEM, with the chain: this program's certificate, by which the others know it");
  add("key", po::value<std::string>()->value_name("FILE"), "PEM: its key");
  add("ca", po::value<std::string>()->value_name("FILE"),
      "PEM: the CA that signs the certificates of the nodes and their clients, and nothing else");
}

void add_node_options(po::options_description& own) {
  auto add = own.add_options();
  add("nodes", po::value<std::string>()->value_name("HOST:PORT,..."),
      "machines with replicas (troupe node); without --device or --devices nothing is computed here");
  add_certificate_options(own);
  add("link-silence", po::value<std::int64_t>()->default_value(3000)->value_name("MS"),
      "without a word of a node for so long it is taken for gone");
}

bool takes_value(std::string_view word) {
  const po::options_description common = common_options();
  const std::size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  const std::string name(dashes == 1 ? word : word.substr(dashes));  // "-m" is the short name as Boost knows it
  const po::option_description* option = dashes == 0 ? nullptr : common.find_nothrow(name, false);
  return option != nullptr && option->semantic()->max_tokens() > 0;
}

std::string common_help() {
  std::ostringstream text;
  text << common_options();
  return text.str();
}

std::string default_model_path() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  std::string cache = variable("TROUPE_CACHE");
  if (cache.empty()) {
    const std::string xdg = variable("XDG_CACHE_HOME");
    cache = (xdg.empty() ? variable("HOME") + "/.cache" : xdg) + "/troupe";
  }
  return cache + "/SmolLM2-135M-Instruct.Q4_1.gguf";
}

int fail(const Command& command, const Error& error, int status) {
  std::fputs(fmt::format("troupe {}: {}\n", command.name, error.what).c_str(), stderr);
  return status;
}

}  // namespace troupe::tools
