#include "device/models/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "device/models/json_fields.h"

namespace troupe::device {

namespace json = boost::json;

namespace {

constexpr std::size_t kMostConfig = 1u << 20;
constexpr std::uint32_t kMostRank = 1u << 16;

struct TargetName {
  std::string_view leaf, block;
};
// In the order of LoraTarget.
constexpr TargetName kNames[] = {{"q_proj", "self_attn"}, {"k_proj", "self_attn"}, {"v_proj", "self_attn"}, {"o_proj", "self_attn"},
                                 {"gate_proj", "mlp"},    {"up_proj", "mlp"},      {"down_proj", "mlp"}};
static_assert(std::size(kNames) == kLoraTargets);

// Fields that say nothing about the arithmetic of a trained adapter: training, bookkeeping, and how it was initialised.
constexpr std::string_view kIgnored[] = {"auto_mapping",      "base_model_name_or_path",
                                         "corda_config",      "ensure_weight_tying",
                                         "eva_config",        "inference_mode",
                                         "layers_pattern",    "loftq_config",
                                         "lora_dropout",      "lora_ga_config",
                                         "megatron_core",     "peft_version",
                                         "qalora_group_size", "revision",
                                         "runtime_config",    "task_type"};
// Fields that are read below.
constexpr std::string_view kRead[] = {"alpha_pattern", "bias",           "init_lora_weights", "lora_alpha", "peft_type", "r",
                                      "rank_pattern",  "target_modules", "use_rslora"};

template <std::size_t N>
bool among(std::string_view key, const std::string_view (&keys)[N]) {
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
}

std::optional<LoraTarget> target_of(std::string_view leaf) {
  for (std::size_t i = 0; i < kLoraTargets; ++i)
    if (kNames[i].leaf == leaf) return static_cast<LoraTarget>(i);
  return std::nullopt;
}

constexpr const char* kKnownTargets = "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj or down_proj";

bool says_nothing(const json::value& v) {
  if (v.is_null()) return true;
  if (v.is_bool()) return !v.get_bool();
  if (v.is_object()) return v.get_object().empty();
  return v.is_array() && v.get_array().empty();
}

Error unsupported(const JsonFields& f, std::string_view key, const std::string& why) {
  return {ErrorCode::unsupported, fmt::format("{}: field '{}' is {}; {}", f.where(),
                                              shown_json(json::value(json::string_view(key.data(), std::min<std::size_t>(key.size(), 80)))),
                                              shown_json(*f.find(key)), why)};
}

// A module's own value: of the first key that is its name or the end of it behind a dot.
struct Pattern {
  std::string key;
  double value = 0.0;
};

struct Settings {
  std::array<bool, kLoraTargets> targets{};
  std::uint32_t r = 0;
  double alpha = 0.0;
  bool rslora = false;
  std::vector<Pattern> ranks, alphas;
};

Result<std::vector<Pattern>> read_patterns(const JsonFields& f, std::string_view key) {
  std::vector<Pattern> out;
  if (!f.has(key)) return out;
  TROUPE_TRY(auto fields, f.object(key));
  for (const auto& [k, v] : f.find(key)->get_object()) {
    const std::string_view name(k.data(), k.size());
    // PEFT takes the key as a regular expression; plain names are those that mean themselves.
    const auto plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    };
    if (name.empty() || !std::all_of(name.begin(), name.end(), plain)) {
      return Error{ErrorCode::unsupported, fmt::format("{}: key {} is no plain module name; regular expressions are not read",
                                                       fields.where(), shown_json(json::value(k)))};
    }
    TROUPE_TRY(auto value, fields.number(name));
    out.push_back({std::string(name), value});
  }
  return out;
}

double value_for(const std::vector<Pattern>& patterns, std::string_view module, double otherwise) {
  for (const Pattern& p : patterns) {
    if (module == p.key) return p.value;
    if (module.size() > p.key.size() && module.ends_with(p.key) && module[module.size() - p.key.size() - 1] == '.') return p.value;
  }
  return otherwise;
}

Result<Settings> read_settings(const JsonFields& f, const json::object& object) {
  TROUPE_TRY(auto type, f.string("peft_type"));
  if (type != "LORA") return unsupported(f, "peft_type", "only LORA adapters are read");
  TROUPE_TRY(auto bias, f.string_or("bias", "none"));
  if (bias != "none") return unsupported(f, "bias", "adapters that train biases are not read: \"none\" is expected");
  for (const auto& [k, v] : object) {
    const std::string_view key(k.data(), k.size());
    if (among(key, kIgnored) || among(key, kRead) || says_nothing(v)) continue;
    return unsupported(f, key, "this build does not do that; null, false or empty is expected");
  }
  if (const json::value* init = f.find("init_lora_weights"); init != nullptr && !init->is_bool()) {
    // The others also change the weights of the base model, which the adapter then does not fit.
    const bool harmless =
        init->is_string() && (init->get_string() == "gaussian" || init->get_string() == "eva" || init->get_string() == "orthogonal");
    if (!harmless) return unsupported(f, "init_lora_weights", "it changes the base model's weights: convert the adapter when you save it");
  }
  Settings s;
  TROUPE_TRY(s.r, f.count("r", 1, kMostRank));
  TROUPE_TRY(s.alpha, f.number("lora_alpha"));
  TROUPE_TRY(s.rslora, f.boolean_or("use_rslora", false));
  TROUPE_TRY(s.ranks, read_patterns(f, "rank_pattern"));
  for (const Pattern& p : s.ranks) {
    if (p.value >= 1.0 && p.value <= kMostRank && p.value == std::floor(p.value)) continue;
    return f.bad("rank_pattern", fmt::format("a whole number from 1 to {} for '{}'", kMostRank, p.key));
  }
  TROUPE_TRY(s.alphas, read_patterns(f, "alpha_pattern"));

  const json::value* modules = f.find("target_modules");
  if (modules == nullptr) return f.bad("target_modules", "a list of module names");
  if (modules->is_string()) {
    if (modules->get_string() != "all-linear")
      return unsupported(f, "target_modules", "regular expressions are not read: a list of module names is expected");
    s.targets.fill(true);
    return s;
  }
  if (!modules->is_array() || modules->get_array().empty()) return f.bad("target_modules", "a list of module names");
  for (const json::value& m : modules->get_array()) {
    const auto target = m.is_string() ? target_of(std::string_view(m.get_string().data(), m.get_string().size())) : std::nullopt;
    if (!target) {
      return Error{ErrorCode::unsupported,
                   fmt::format("{}: field 'target_modules' has {}; {} is expected", f.where(), shown_json(m), kKnownTargets)};
    }
    s.targets[static_cast<std::size_t>(*target)] = true;
  }
  return s;
}

std::string dims_of(const StoredTensor& t) {
  std::string s = "[";
  for (std::size_t i = t.dims.size(); i > 0; --i) s += fmt::format("{}{}", t.dims[i - 1], i == 1 ? "" : ", ");
  return s + "]";
}

Result<kernels::Weight> matrix_of(const SafetensorsModel& tensors, const std::string& name, std::uint32_t rows, std::uint32_t cols) {
  const std::string expected = fmt::format("a matrix [{}, {}] in F32, F16 or BF16 is expected", rows, cols);
  const StoredTensor* t = tensors.tensor(name);
  if (t == nullptr) return Error{ErrorCode::bad_file, fmt::format("{}: tensor {} is missing; {}", tensors.path(), name, expected)};
  std::optional<kernels::Format> format;
  if (t->type == TensorType::F32) format = kernels::Format::f32;
  if (t->type == TensorType::F16) format = kernels::Format::f16;
  if (t->type == TensorType::BF16) format = kernels::Format::bf16;
  if (!format || t->dims.size() != 2 || t->dims[0] != cols || t->dims[1] != rows) {
    return Error{ErrorCode::bad_file,
                 fmt::format("{}: tensor {} is {} {}; {}", tensors.path(), name, device::name(t->type), dims_of(*t), expected)};
  }
  return kernels::Weight{t->data, *format, rows, cols};
}

}  // namespace

const char* name(LoraTarget target) { return kNames[static_cast<std::size_t>(target)].leaf.data(); }

LoraShape lora_shape(const ModelConfig& c, LoraTarget target) {
  switch (target) {
    case LoraTarget::q:
      return {c.q_rows(), c.width};
    case LoraTarget::k:
    case LoraTarget::v:
      return {c.kv_width(), c.width};
    case LoraTarget::o:
      return {c.width, c.q_width()};
    case LoraTarget::gate:
    case LoraTarget::up:
      return {c.ffn, c.width};
    case LoraTarget::down:
      return {c.width, c.ffn};
  }
  return {};
}

bool has_target(const ModelConfig& c, std::uint32_t layer, LoraTarget target) {
  return !c.is_recurrent(layer) || target == LoraTarget::gate || target == LoraTarget::up || target == LoraTarget::down;
}

Result<LoraAdapter> LoraAdapter::make(std::string_view text, SafetensorsModel tensors, const std::string& name, const ModelConfig& model) {
  const std::string where = name + "/adapter_config.json";
  TROUPE_TRY(auto value, parse_json(text, where));
  TROUPE_TRY(auto fields, JsonFields::of(value, where));
  TROUPE_TRY(auto settings, read_settings(fields, value.get_object()));
  LoraAdapter out(std::move(tensors));
  out.path_ = name;
  std::size_t used = 0;
  // Trained on the whole of Qwen3.5, whose text part lies a level deeper.
  const auto& tensors_there = out.tensors_->tensors();
  const bool nested = std::any_of(tensors_there.begin(), tensors_there.end(),
                                  [](const StoredTensor& t) { return t.name.starts_with("base_model.model.model.language_model."); });
  for (std::uint32_t layer = 0; layer < model.layers; ++layer) {
    auto& pairs = out.layers_.emplace_back();
    for (std::size_t i = 0; i < kLoraTargets; ++i) {
      if (!settings.targets[i] || !has_target(model, layer, static_cast<LoraTarget>(i))) continue;
      const std::string module =
          fmt::format("model.{}layers.{}.{}.{}", nested ? "language_model." : "", layer, kNames[i].block, kNames[i].leaf);
      const std::string stem = "base_model.model." + module;
      const LoraShape shape = lora_shape(model, static_cast<LoraTarget>(i));
      LoraPair& p = pairs[i];
      p.rank = static_cast<std::uint32_t>(value_for(settings.ranks, module, settings.r));
      const double alpha = value_for(settings.alphas, module, settings.alpha);
      p.scale = static_cast<float>(alpha / (settings.rslora ? std::sqrt(static_cast<double>(p.rank)) : static_cast<double>(p.rank)));
      if (!std::isfinite(p.scale)) {
        return Error{ErrorCode::bad_file, fmt::format("{}: the scale of {} is {}; a finite number is expected", where, module, p.scale)};
      }
      TROUPE_TRY(p.a, matrix_of(*out.tensors_, stem + ".lora_A.weight", p.rank, shape.cols));
      TROUPE_TRY(p.b, matrix_of(*out.tensors_, stem + ".lora_B.weight", shape.rows, p.rank));
      used += 2;
      out.rank_ = std::max(out.rank_, p.rank);
    }
  }
  if (used == out.tensors_->tensors().size()) return out;
  // What is left over: of a module that is not targeted, of a layer that the model lacks, or of something else.
  for (const StoredTensor& t : out.tensors_->tensors()) {
    const auto is_used = [&] {
      for (const auto& pairs : out.layers_) {
        for (const LoraPair& p : pairs)
          if (p.a.data == t.data || p.b.data == t.data) return true;
      }
      return false;
    };
    if (is_used()) continue;
    return Error{
        ErrorCode::unsupported,
        fmt::format("{}: tensor {} belongs to no module that adapter_config.json targets in a model of {} layers; lora_A and lora_B of "
                    "the targets alone are expected",
                    out.tensors_->path(),
                    shown_json(json::value(json::string_view(t.name.data(), std::min<std::size_t>(t.name.size(), 80)))), model.layers)};
  }
  return out;
}

Result<LoraAdapter> LoraAdapter::open(const std::string& folder, const ModelConfig& model) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return Error{ErrorCode::not_found,
                 folder + ": is no folder; a folder with adapter_config.json and adapter_model.safetensors is expected"};
  }
  TROUPE_TRY(auto text, read_text_file(folder + "/adapter_config.json", kMostConfig));
  const std::string weights = folder + "/adapter_model.safetensors";
  if (!std::filesystem::exists(weights, error)) {
    return Error{ErrorCode::not_found, weights + ": is not there; save the adapter as safetensors"};
  }
  TROUPE_TRY(auto tensors, SafetensorsModel::open(weights));
  return make(text, std::move(tensors), folder, model);
}

Result<LoraAdapter> LoraAdapter::parse(std::string_view config, std::span<const std::byte> weights, const std::string& name,
                                       const ModelConfig& model) {
  TROUPE_TRY(auto tensors, SafetensorsModel::parse(weights, name + "/adapter_model.safetensors"));
  return make(config, std::move(tensors), name, model);
}

}  // namespace troupe::device
