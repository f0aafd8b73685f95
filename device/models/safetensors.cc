#include "device/models/safetensors.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "device/models/file_mapping.h"
#include "device/models/gguf_format.h"
#include "device/models/json_fields.h"

namespace troupe::device {

namespace json = boost::json;
using gguf_format::shown;

namespace {

constexpr std::size_t kMostHeader = 32u << 20;
constexpr std::size_t kMostShards = 4096;
constexpr std::size_t kMostDims = 4;

struct Dtype {
  std::string_view name;
  TensorType type;
};
constexpr Dtype kDtypes[] = {{"F32", TensorType::F32}, {"F16", TensorType::F16}, {"BF16", TensorType::BF16}, {"F64", TensorType::F64},
                             {"I8", TensorType::I8},   {"I16", TensorType::I16}, {"I32", TensorType::I32},   {"I64", TensorType::I64}};

std::optional<std::uint64_t> whole(const json::value& v) {
  if (v.is_uint64()) return v.get_uint64();
  if (v.is_int64() && v.get_int64() >= 0) return static_cast<std::uint64_t>(v.get_int64());
  return std::nullopt;
}

// What a tensor's entry in the header says; offsets count from the end of the header.
struct Entry {
  StoredTensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Result<Entry> read_entry(const json::value& value, const std::string& where, std::uint64_t data_bytes) {
  TROUPE_TRY(auto f, JsonFields::of(value, where));
  TROUPE_TRY(auto dtype, f.string("dtype"));
  const auto* known = std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const Dtype& d) { return d.name == dtype; });
  if (known == std::end(kDtypes)) {
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: field 'dtype' is {}; F32, F16 or BF16 is expected", where, shown_json(*f.find("dtype")))};
  }
  Entry e;
  e.tensor.type = known->type;
  const std::uint64_t element = layout(known->type)->block_bytes;

  constexpr const char* kShape = "an array of at most 4 numbers, none 0,";
  const json::value* shape = f.find("shape");
  if (shape == nullptr || !shape->is_array() || shape->get_array().size() > kMostDims) return f.bad("shape", kShape);
  std::uint64_t elements = 1;
  for (const json::value& d : shape->get_array()) {
    const auto n = whole(d);
    if (!n || *n == 0) return f.bad("shape", kShape);
    if (*n > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / 8 / elements)
      return f.bad("shape", "fewer than 2^60 elements");
    elements *= *n;
    e.tensor.dims.insert(e.tensor.dims.begin(), *n);
  }
  if (e.tensor.dims.empty()) e.tensor.dims.push_back(1);  // a scalar

  const json::value* offsets = f.find("data_offsets");
  const bool two = offsets != nullptr && offsets->is_array() && offsets->get_array().size() == 2;
  const auto begin = two ? whole(offsets->get_array()[0]) : std::nullopt;
  const auto end = two ? whole(offsets->get_array()[1]) : std::nullopt;
  if (!begin || !end || *begin > *end || *end > data_bytes) {
    return f.bad("data_offsets", fmt::format("[begin, end] within the {} bytes that follow the header", data_bytes));
  }
  if (*end - *begin != elements * element) {
    return f.bad("data_offsets",
                 fmt::format("a range of {} bytes, as 'shape' {} of {} needs,", elements * element, shown_json(*shape), dtype));
  }
  e.begin = *begin;
  e.end = *end;
  e.tensor.bytes = *end - *begin;
  return e;
}

bool is_folder(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}
bool is_there(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0;
}

}  // namespace

std::string gguf_tensor_name(std::string_view name) {
  struct Pair {
    std::string_view theirs, gguf;
  };
  constexpr Pair kWhole[] = {
      {"model.embed_tokens.weight", "token_embd.weight"}, {"model.norm.weight", "output_norm.weight"}, {"lm_head.weight", "output.weight"}};
  // Qwen3.5's text part inside the whole: model.language_model.layers.0. ...
  constexpr std::string_view kModel = "model.", kNested = "model.language_model.";
  std::string flat;
  if (name.starts_with(kNested)) name = flat = std::string(kModel) + std::string(name.substr(kNested.size()));
  constexpr Pair kBare[] = {{"linear_attn.A_log", "ssm_a_log"}, {"linear_attn.dt_bias", "ssm_dt.bias"}};
  constexpr Pair kParts[] = {{"input_layernorm", "attn_norm"},       {"post_attention_layernorm", "ffn_norm"},
                             {"self_attn.q_proj", "attn_q"},         {"self_attn.k_proj", "attn_k"},
                             {"self_attn.v_proj", "attn_v"},         {"self_attn.o_proj", "attn_output"},
                             {"self_attn.q_norm", "attn_q_norm"},    {"self_attn.k_norm", "attn_k_norm"},
                             {"mlp.gate_proj", "ffn_gate"},          {"mlp.up_proj", "ffn_up"},
                             {"mlp.down_proj", "ffn_down"},          {"linear_attn.in_proj_qkv", "attn_qkv"},
                             {"linear_attn.in_proj_z", "attn_gate"}, {"linear_attn.in_proj_a", "ssm_alpha"},
                             {"linear_attn.in_proj_b", "ssm_beta"},  {"linear_attn.conv1d", "ssm_conv1d"},
                             {"linear_attn.norm", "ssm_norm"},       {"linear_attn.out_proj", "ssm_out"}};
  for (const Pair& p : kWhole) {
    if (name == p.theirs) return std::string(p.gguf);
  }
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return std::string(name);
  const std::string_view rest = name.substr(kLayers.size());
  const std::size_t dot = rest.find_first_not_of("0123456789");
  const std::size_t last = rest.rfind('.');
  if (dot == 0 || dot == std::string_view::npos || rest[dot] != '.' || last <= dot) return std::string(name);
  for (const Pair& p : kBare) {
    if (rest.substr(dot + 1) == p.theirs) return fmt::format("blk.{}.{}", rest.substr(0, dot), p.gguf);
  }
  const std::string_view part = rest.substr(dot + 1, last - dot - 1), kind = rest.substr(last + 1);
  if (kind != "weight" && kind != "bias") return std::string(name);
  for (const Pair& p : kParts) {
    if (part == p.theirs) return fmt::format("blk.{}.{}.{}", rest.substr(0, dot), p.gguf, kind);
  }
  return std::string(name);
}

Result<void> SafetensorsModel::add_file(std::span<const std::byte> bytes, const std::string& file) {
  const auto bad = [&](const std::string& what) { return Error{ErrorCode::bad_file, file + ": " + what}; };
  if (bytes.size() < 8) return bad(fmt::format("byte 0: the header's size, 8 bytes, is expected, but the file has {}", bytes.size()));
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  if (header > bytes.size() - 8)
    return bad(fmt::format("byte 0: a header of {} bytes, but only {} bytes follow", header, bytes.size() - 8));
  if (header > kMostHeader) return bad(fmt::format("byte 0: a header of {} bytes; at most {} are expected", header, kMostHeader));
  const std::span<const std::byte> data = bytes.subspan(8 + header);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data() + 8), header);
  if (!text.starts_with('{')) return bad("byte 8: a header that begins with '{' is expected");
  auto parsed = parse_json(text, file + ": header");
  if (!parsed) return parsed.error();
  TROUPE_TRY(auto fields, JsonFields::of(parsed.value(), file + ": header"));

  std::vector<Entry> entries;
  const json::object& object = parsed.value().get_object();
  entries.reserve(object.size());
  for (const auto& [key, value] : object) {
    if (key == "__metadata__") continue;
    const std::string where = fmt::format("{}: tensor '{}'", file, shown({key.data(), key.size()}));
    TROUPE_TRY(auto e, read_entry(value, where, data.size()));
    e.tensor.data = data.data() + e.begin;
    const std::uint64_t at = 8 + header + e.begin;
    if (const std::uint32_t element = layout(e.tensor.type)->block_bytes; at % element != 0) {
      return Error{ErrorCode::unsupported,
                   fmt::format("{}: begins at byte {}; a multiple of {} is expected: write the file again, aligned", where, at, element)};
    }
    names_.push_back(std::make_unique<const std::string>(gguf_tensor_name({key.data(), key.size()})));
    e.tensor.name = *names_.back();
    entries.push_back(std::move(e));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t covered = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& e = entries[i];
    if (e.begin < covered) {
      return bad(fmt::format("tensor '{}' begins at byte {} of the data and overlaps tensor '{}', which ends at {}", shown(e.tensor.name),
                             e.begin, shown(entries[i - 1].tensor.name), covered));
    }
    if (e.begin > covered) {
      return bad(fmt::format("bytes {} to {} of the data belong to no tensor; tensors without a gap are expected", covered, e.begin));
    }
    covered = e.end;
  }
  if (covered != data.size()) {
    return bad(fmt::format("the tensors end at byte {} of the data, the file at {}; the same is expected", covered, data.size()));
  }
  for (Entry& e : entries) tensors_.push_back(std::move(e.tensor));
  ++files_;
  return success();
}

Result<void> SafetensorsModel::sort() {
  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < tensors_.size(); ++i) {
    if (tensors_[i].name == tensors_[i - 1].name) {
      return Error{ErrorCode::bad_file, fmt::format("{}: tensor '{}' is there twice", path_, shown(tensors_[i].name))};
    }
  }
  return success();
}

Result<void> SafetensorsModel::add_mapped(const std::string& file) {
  TROUPE_TRY(auto mapping, map_file(file));
  mappings_.push_back(mapping.data);
  return add_file(mapping.span(), file);
}

Result<void> SafetensorsModel::add_shards(const std::string& folder, const std::string& index) {
  TROUPE_TRY(auto text, read_text_file(index, kMostHeader));
  TROUPE_TRY(auto value, parse_json(text, index));
  TROUPE_TRY(auto root, JsonFields::of(value, index));
  TROUPE_TRY(auto map, root.object("weight_map"));
  std::map<std::string, std::vector<std::string>> shards;  // file name -> its tensors
  for (const auto& [tensor, file] : value.get_object().at("weight_map").get_object()) {
    const std::string_view key(tensor.data(), tensor.size());
    TROUPE_TRY(auto name, map.string(key));
    // Only files of the folder itself: an index must not lead elsewhere.
    if (name.empty() || name[0] == '.' || name.find('/') != std::string_view::npos || name.find('\0') != std::string_view::npos) {
      return map.bad(shown(key), "the name of a file in the same folder");
    }
    shards[std::string(name)].push_back(gguf_tensor_name(key));
    if (shards.size() > kMostShards) return Error{ErrorCode::bad_file, fmt::format("{}: more than {} files are named", index, kMostShards)};
  }
  if (shards.empty()) return Error{ErrorCode::bad_file, index + ": field 'weight_map' names no tensor"};
  for (const auto& [file, names] : shards) {
    const std::size_t before = tensors_.size();
    TROUPE_TRY(add_mapped(folder + "/" + file));
    // Of this file the tensors that the index places in it, no others.
    std::vector<std::string_view> here;
    for (std::size_t i = before; i < tensors_.size(); ++i) here.push_back(tensors_[i].name);
    std::sort(here.begin(), here.end());
    for (const std::string& name : names) {
      if (std::binary_search(here.begin(), here.end(), name)) continue;
      return Error{ErrorCode::bad_file, fmt::format("{}: tensor '{}' is expected in {}, which lacks it", index, shown(name), file)};
    }
    if (names.size() != here.size()) {
      return Error{ErrorCode::bad_file,
                   fmt::format("{}: {} tensors are expected in {}, which has {}", index, names.size(), file, here.size())};
    }
  }
  return success();
}

Result<SafetensorsModel> SafetensorsModel::open(const std::string& path) {
  SafetensorsModel m;
  m.path_ = path;
  if (!is_folder(path)) {
    TROUPE_TRY(m.add_mapped(path));
  } else {
    const std::string one = path + "/model.safetensors", index = path + "/model.safetensors.index.json";
    if (is_there(one)) {
      TROUPE_TRY(m.add_mapped(one));
    } else if (is_there(index)) {
      TROUPE_TRY(m.add_shards(path, index));
    } else {
      return Error{ErrorCode::not_found,
                   path + ": has neither model.safetensors nor model.safetensors.index.json; a folder with one of them is expected"};
    }
  }
  TROUPE_TRY(m.sort());
  return m;
}

Result<SafetensorsModel> SafetensorsModel::parse(std::span<const std::byte> bytes, std::string name) {
  SafetensorsModel m;
  m.path_ = std::move(name);
  TROUPE_TRY(m.add_file(bytes, m.path_));
  TROUPE_TRY(m.sort());
  return m;
}

const StoredTensor* SafetensorsModel::tensor(std::string_view name) const {
  const auto it =
      std::lower_bound(tensors_.begin(), tensors_.end(), name, [](const StoredTensor& t, std::string_view n) { return t.name < n; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

}  // namespace troupe::device
