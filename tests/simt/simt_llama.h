// The forward pass that every device shares (device/models/llama_forward.h) over the CUDA kernels, run by the SIMT machine:
// what a CUDA model enqueues, without a driver. Each step gets its rows, tables, cells and scratch as device code would see
// them, in ordinary memory. Throws what is wrong with a model's files.
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/host/driver.h"
#include "device/models/device_memory.h"
#include "device/models/device_weights.h"
#include "device/models/gguf.h"
#include "device/models/llama_adapters.h"
#include "device/models/llama_forward.h"
#include "device/models/model_config.h"
#include "device/models/safetensors.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/families.h"
#include "tests/simt/simt.h"

namespace troupe::simt {

struct LlamaRow {
  std::uint32_t slot = 0, position = 0;
  std::vector<std::uint32_t> ids = {};  // empty: fed
  std::uint32_t feed_row = 0;           // fed: from this row of the step before
  bool wants = true;
  std::uint32_t adapter = 0;  // slot
  std::uint32_t mask_a = kernels::kNone, mask_b = kernels::kNone;
};

struct LlamaAnswer {
  std::vector<kernels::RowReadback> rows;
  std::vector<std::vector<float>> logits;  // of rows that want a token
};

struct SimtLlamaOptions {
  std::uint64_t seed = 1;
  std::uint32_t context = 320;
  std::uint32_t block_size = 16;
  std::uint32_t slots = 8;
  std::uint32_t blocks = 64;
  std::uint32_t max_decode_tokens = 8;  // above: the prefill attention
  std::uint32_t max_loras = 0, max_lora_rank = 16;
  std::uint32_t max_step_tokens = 512;  // of steps with adapters
};

class SimtLlama {
 public:
  SimtLlama(const std::string& path, const SimtLlamaOptions& options) : o_(options), machine_(options.seed) {
    const auto take = [](auto result) {
      if (!result) throw std::runtime_error(result.error().what);
      return std::move(result.value());
    };
    const auto text = [](const std::string& file) {
      std::ifstream in(file, std::ios::binary);
      return std::string{std::istreambuf_iterator<char>(in), {}};
    };
    std::shared_ptr<const device::TensorSource> source;
    if (path.ends_with(".gguf")) {
      auto file = std::make_shared<device::GgufFile>(take(device::GgufFile::open(path)));
      config_ = take(device::model_config_from_gguf(*file));
      source = file;
    } else {
      source = std::make_shared<device::SafetensorsModel>(take(device::SafetensorsModel::open(path)));
      config_ = take(device::model_config_from_json(text(path + "/config.json"), text(path + "/generation_config.json"), path));
    }
    // As on a device: every tensor where 128 bits can be read at a time.
    weights_ = take(device::on_device(take(device::load_llama_weights(*source, config_)), config_, memory_, *driver_));
    partial_.resize(kernels::attention_partial_floats(o_.max_decode_tokens, config_.heads, config_.head_dim, o_.context));
    if (auto made = adapters_.init(memory_, config_, o_.max_loras, o_.max_lora_rank); !made) throw std::runtime_error(made.error().what);
    shrunk_.resize(o_.max_loras == 0 ? 0 : kernels::lora_scratch_floats(o_.max_step_tokens, o_.max_lora_rank));
    kernels_ = kernels::make_cuda_kernels({.stream = &machine_,
                                           .max_context = o_.context,
                                           .max_decode_tokens = o_.max_decode_tokens,
                                           .partial = partial_.data(),
                                           .max_lora_rank = o_.max_loras == 0 ? 0 : o_.max_lora_rank,
                                           .lora_shrunk = shrunk_.data()});
    kv_ = {nullptr, config_.layers - config_.recurrent_layers(), o_.blocks, o_.block_size, config_.kv_heads, config_.head_dim};
    cache_.resize(kernels_->kv_bytes(kv_) / 4);
    kv_.data = cache_.data();
    if (config_.recurrent_layers() != 0) {
      recurrent_ = device::delta_states(config_, 2 * o_.slots);
      states_.assign(recurrent_.floats(), std::nanf(""));
      recurrent_.data = states_.data();
    }
    const std::uint32_t per_slot = (o_.context + o_.block_size - 1) / o_.block_size;
    entries_.resize(std::size_t{o_.slots} * per_slot);
    tables_ = {entries_.data(), o_.slots, per_slot};
    for (std::uint32_t b = 0; b < o_.blocks; ++b) free_.push_back(b);
    std::shuffle(free_.begin(), free_.end(), std::mt19937_64(options.seed));
  }

  const device::ModelConfig& config() const { return config_; }
  const Machine& machine() const { return machine_; }

  // Into the slot and into the table.
  void load_adapter(std::uint32_t slot, const std::string& folder) {
    auto adapter = device::LoraAdapter::open(folder, config_);
    if (!adapter) throw std::runtime_error(adapter.error().what);
    if (auto r = adapters_.upload(slot, adapter.value()); !r) throw std::runtime_error(r.error().what);
    if (auto r = adapters_.show(slot); !r) throw std::runtime_error(r.error().what);
  }

  void release(std::uint32_t slot) {
    free_.insert(free_.end(), blocks_[slot].begin(), blocks_[slot].end());
    blocks_[slot].clear();
  }

  LlamaAnswer step(const std::vector<LlamaRow>& wanted) {
    namespace k = kernels;
    std::vector<k::StepRow> rows;
    std::vector<std::uint32_t> ids;
    std::vector<k::TableChange> changes;
    std::vector<k::LoraRun> runs;
    std::uint32_t n = 0, outputs = 0;
    const std::uint32_t before = tag_++;
    for (const LlamaRow& w : wanted) {
      k::StepRow r;
      r.slot = w.slot, r.position = w.position;
      r.mask_a = w.mask_a, r.mask_b = w.mask_b;
      if (w.ids.empty()) {
        r.fed = 1, r.feed_cells = before % 2, r.index = w.feed_row, r.feed_tag = before;
      } else {
        r.n_tokens = static_cast<std::uint32_t>(w.ids.size());
        r.index = static_cast<std::uint32_t>(ids.size());
        ids.insert(ids.end(), w.ids.begin(), w.ids.end());
      }
      if (w.wants) r.output = r.logits_row = outputs++;
      if (config_.recurrent_layers() != 0) {  // a slot's two versions in turn
        std::uint32_t& latest = latest_[w.slot];
        r.state_in = w.position == 0 ? k::kNone : 2 * w.slot + latest;
        r.state_out = 2 * w.slot + (latest ^= 1);
      }
      if (w.adapter != 0) runs.push_back({n, r.n_tokens, w.adapter});
      n += r.n_tokens;
      auto& table = blocks_[w.slot];
      while (table.size() * o_.block_size < r.position + r.n_tokens) {
        if (free_.empty()) throw std::runtime_error("out of blocks");
        changes.push_back({w.slot, static_cast<std::uint32_t>(table.size()), free_.back()});
        table.push_back(free_.back());
        free_.pop_back();
      }
      rows.push_back(r);
    }
    if (!runs.empty() && n > o_.max_step_tokens) throw std::runtime_error("too many tokens in a step");
    ids.push_back(0);
    const device::ModelConfig& c = config_;
    const auto nan = std::nanf("");
    const auto floats = [&](std::size_t count) { return std::vector<float>(count, nan); };
    std::vector<k::StepToken> tokens(n);
    auto angles = floats(std::size_t{n} * c.rotated), x = floats(std::size_t{n} * c.width), h = x;
    auto qkv = floats(std::size_t{n} * (c.q_width() + 2 * c.kv_width())), attended = floats(std::size_t{n} * c.q_width());
    auto gate = floats(std::size_t{n} * c.ffn), up = gate;
    auto chosen = floats(std::size_t{outputs} * c.width), logits = floats(std::size_t{outputs} * c.vocab), out = logits;
    auto pairs = floats(c.gated_attention ? std::size_t{n} * c.q_rows() : 0), head_gates = floats(c.gated_attention ? attended.size() : 0);
    const device::DeltaShape& d = c.delta;
    auto input = floats(std::size_t{n} * d.channels()), mixed = input, z = floats(std::size_t{n} * d.value_width()), made = z;
    auto a = floats(std::size_t{n} * d.v_heads), b = a;
    device::LlamaScratch scratch;
    scratch.pairs = pairs.data(), scratch.head_gates = head_gates.data();
    scratch.delta = {input.data(), mixed.data(), z.data(), made.data(), a.data(), b.data()};
    scratch.tokens = tokens.data(), scratch.angles = angles.data();
    scratch.x = x.data(), scratch.h = h.data(), scratch.qkv = qkv.data(), scratch.attended = attended.data();
    scratch.gate = gate.data(), scratch.up = up.data();
    scratch.outputs = chosen.data(), scratch.logits = logits.data();
    LlamaAnswer answer;
    answer.rows.resize(rows.size());
    auto& cells = cells_[tag_ % 2];
    cells.assign(std::max<std::size_t>(rows.size(), 8), {});
    const k::Cell* arrays[2] = {cells_[0].data(), cells_[1].data()};
    kernels_->apply_changes(tables_, changes.data(), static_cast<std::uint32_t>(changes.size()));
    k::FeedArgs feed;
    feed.rows = rows.data(), feed.n_rows = static_cast<std::uint32_t>(rows.size());
    feed.ids = ids.data(), feed.cell_arrays = arrays, feed.cells = cells.data();
    feed.tag = tag_, feed.vocab = c.vocab;
    feed.block_size = o_.block_size, feed.n_blocks = o_.blocks, feed.window = c.sliding_window;
    feed.tables = tables_, feed.tokens = tokens.data(), feed.readback = answer.rows.data();
    device::llama_forward(*kernels_, c, weights_, c.inv_freq.data(), scratch, {kv_, recurrent_}, feed, {runs, &adapters_}, n, outputs);
    kernels_->argmax(rows.data(), feed.n_rows, logits.data(), c.vocab, tag_, cells.data(), answer.rows.data(), out.data());
    for (std::uint32_t o = 0; o < outputs; ++o)
      answer.logits.emplace_back(out.begin() + std::size_t{o} * c.vocab, out.begin() + std::size_t{o + 1} * c.vocab);
    return answer;
  }

 private:
  SimtLlamaOptions o_;
  Machine machine_;
  device::ModelConfig config_;
  device::LlamaWeights weights_;
  std::unique_ptr<device::Driver> driver_ = device::make_host_driver({});
  device::DeviceMemory memory_{*driver_};
  device::LlamaAdapters adapters_;
  std::vector<float> partial_, shrunk_;
  std::unique_ptr<kernels::Kernels> kernels_;
  kernels::KvCache kv_;
  std::vector<std::uint32_t> cache_, entries_, free_;
  kernels::RecurrentStates recurrent_;
  std::vector<float> states_;
  std::map<std::uint32_t, std::uint32_t> latest_;  // by slot: which of its two versions its last row wrote
  kernels::BlockTables tables_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> blocks_;
  std::vector<kernels::Cell> cells_[2] = {std::vector<kernels::Cell>(8), std::vector<kernels::Cell>(8)};
  std::uint32_t tag_ = 1;
};

}  // namespace troupe::simt
