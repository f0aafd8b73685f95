// Runs steps of a Llama model on the host driver, as a router would: block tables, cells by ring slot, readback.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "device/host/driver.h"
#include "device/models/gguf.h"
#include "device/models/llama.h"
#include "device/models/model_config.h"
#include "device/models/safetensors.h"

namespace troupe::device {

struct RigModel {
  std::shared_ptr<const TensorSource> source;
  ModelConfig config;
};

inline std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A GGUF file, or a folder with config.json and safetensors. Throws what is wrong with it.
inline RigModel open_model(const std::string& path) {
  const auto take = [](auto result) {
    if (!result) throw std::runtime_error(result.error().what);
    return std::move(result.value());
  };
  if (!std::filesystem::is_directory(path)) {
    auto file = std::make_shared<GgufFile>(take(GgufFile::open(path)));
    return {file, take(model_config_from_gguf(*file))};
  }
  return {std::make_shared<SafetensorsModel>(take(SafetensorsModel::open(path))),
          take(model_config_from_json(text_of(path + "/config.json"), text_of(path + "/generation_config.json"), path))};
}

struct RigRow {
  std::uint32_t slot = 0;
  std::uint32_t position = 0;
  std::vector<Token> ids = {};  // empty: fed
  std::uint32_t feed_ring = 0;  // fed: from this ring slot's cells,
  std::uint32_t feed_row = 0;   // this row of them,
  std::uint32_t feed_tag = 0;   // with this tag
  bool wants = true;
  RowMask mask = {};
  std::uint32_t adapter = 0;  // slot
  // Of a hybrid model: versions of the state, by slot, counted from 0. none: the slot's latest one, and the one after it.
  std::optional<std::uint32_t> state_in = {};
  std::optional<std::uint32_t> state_out = {};
};

struct RigResult {
  std::vector<Readback> rows;
  std::vector<std::vector<float>> logits;  // per row; empty if it wants none
  std::uint32_t ring = 0;
  std::uint32_t tag = 0;
};

// How a model comes to be on a driver: Model::create of llama.h, or of another device's.
using MakeModel = Result<std::unique_ptr<ModelDeviceFeed>> (*)(std::shared_ptr<const TensorSource>, ModelConfig, const LlamaOptions&,
                                                               Driver&);

template <class Model>
Result<std::unique_ptr<ModelDeviceFeed>> make_model(std::shared_ptr<const TensorSource> source, ModelConfig config,
                                                    const LlamaOptions& options, Driver& driver) {
  TROUPE_TRY(auto made, Model::create(std::move(source), std::move(config), options, driver));
  return std::unique_ptr<ModelDeviceFeed>(std::move(made));
}

class LlamaRig {
 public:
  LlamaRig(const std::string& path, LlamaOptions options, std::uint64_t seed = 1)
      : LlamaRig(path, options, make_host_driver({}), &make_model<LlamaModel>, seed) {}
  LlamaRig(const std::string& path, LlamaOptions options, std::unique_ptr<Driver> driver, MakeModel make, std::uint64_t seed = 1)
      : driver_(std::move(driver)) {
    options.max_logits_rows = options.max_rows;
    auto [source, config] = open_model(path);
    auto model = make(std::move(source), std::move(config), options, *driver_);
    if (!model) throw std::runtime_error(model.error().what);
    model_ = std::move(model.value());
    const ModelInfo& info = model_->info();
    stream_ = driver_->create_stream().value();
    for (std::uint32_t i = 0; i <= info.max_depth; ++i) {
      Ring r;
      r.event = driver_->create_event().value();
      r.cells = driver_->alloc_device(model_->cells_bytes()).value();
      r.readback = static_cast<Readback*>(driver_->alloc_host_pinned(info.max_rows * sizeof(Readback)).value());
      r.logits = static_cast<float*>(driver_->alloc_host_pinned(logits_bytes()).value());
      if (model_->upload_bytes() != 0) r.upload = driver_->alloc_host_pinned(model_->upload_bytes()).value();
      cell_arrays_.push_back(r.cells);
      rings_.push_back(std::move(r));
    }
    // Blocks in no order: nothing may depend on where a position lies.
    for (std::uint32_t b = 0; b < info.kv_blocks; ++b) free_.push_back(b);
    std::shuffle(free_.begin(), free_.end(), std::mt19937_64(seed));
  }
  ~LlamaRig() {
    for (Ring& r : rings_) {
      (void)driver_->event_synchronize(r.event);
      EXPECT_TRUE(driver_->destroy_event(r.event));
      EXPECT_TRUE(driver_->free_device(r.cells, model_->cells_bytes()));
      EXPECT_TRUE(driver_->free_host_pinned(r.readback, model_->info().max_rows * sizeof(Readback)));
      EXPECT_TRUE(driver_->free_host_pinned(r.logits, logits_bytes()));
      EXPECT_TRUE(r.upload == nullptr || driver_->free_host_pinned(r.upload, model_->upload_bytes()));
    }
    EXPECT_TRUE(driver_->destroy_stream(stream_));
    model_.reset();
    EXPECT_EQ(driver_->usage().device_bytes, 0u);
  }

  ModelDeviceFeed& model() { return *model_; }
  Driver& driver() { return *driver_; }
  const ModelInfo& info() const { return model_->info(); }

  // Gives the slot's blocks back.
  void release(std::uint32_t slot) {
    free_.insert(free_.end(), blocks_[slot].begin(), blocks_[slot].end());
    blocks_[slot].clear();
  }

  // Copies the KV of slot `from` into new blocks of slot `to`, and its newest recurrent state into a version of that, by way of
  // page-locked memory.
  Result<void> copy_slot(std::uint32_t from, std::uint32_t to) {
    const std::size_t bytes = blocks_[from].size() * model_->kv_block_bytes();
    TROUPE_TRY(void* memory, driver_->alloc_host_pinned(bytes));
    TROUPE_TRY(model_->copy_blocks_out(blocks_[from], memory, stream_));
    for (std::uint32_t i = 0; i < blocks_[from].size(); ++i) {
      pending_.push_back({to, i, free_.back()});
      blocks_[to].push_back(free_.back());
      free_.pop_back();
    }
    TROUPE_TRY(model_->copy_blocks_in(blocks_[to], memory, stream_));
    TROUPE_TRY(driver_->record_event(rings_[next_ring_].event, stream_));
    TROUPE_TRY(driver_->event_synchronize(rings_[next_ring_].event));
    TROUPE_TRY(driver_->free_host_pinned(memory, bytes));
    return info().has_ssm_layers ? copy_state(from, to) : success();
  }

  // In parts, the last of which is shorter.
  Result<void> copy_state(std::uint32_t from, std::uint32_t to) {
    const std::uint32_t versions = info().max_depth + 1;
    const std::size_t all = model_->ssm_state_bytes(), part = all / 3 + 4;
    TROUPE_TRY(void* memory, driver_->alloc_host_pinned(part));
    const std::uint32_t source = from * versions + states_[from] % versions;
    states_[to] = 1;
    for (std::size_t begin = 0; begin < all; begin += part) {
      const std::size_t bytes = std::min(part, all - begin);
      TROUPE_TRY(model_->copy_state_out(source, begin, bytes, memory, stream_));
      TROUPE_TRY(model_->copy_state_in(to * versions + 1, begin, bytes, memory, stream_));
      TROUPE_TRY(driver_->record_event(rings_[next_ring_].event, stream_));
      TROUPE_TRY(driver_->event_synchronize(rings_[next_ring_].event));
    }
    TROUPE_TRY(driver_->free_host_pinned(memory, part));
    if (all == 0) return Error{ErrorCode::unsupported, "the model cannot copy its recurrent state"};
    return success();
  }

  // Enqueues a step and returns its ring slot. cover: the rows' block tables are extended as they need.
  Result<std::uint32_t> launch(const std::vector<RigRow>& rows, bool cover = true) {
    const std::uint32_t ring = next_ring_;
    Ring& r = rings_[ring];
    if (std::exchange(r.done, false)) model_->fed_step_settled(r.ticket);
    r.rows.clear(), r.tokens.clear(), r.deltas = std::exchange(pending_, {});
    std::uint32_t outputs = 0;
    for (const RigRow& row : rows) {
      DeviceRow d;
      d.slot = row.slot;
      d.position = row.position;
      d.n_tokens = row.ids.empty() ? 1 : static_cast<std::uint32_t>(row.ids.size());
      d.source = row.ids.empty() ? FeedSource::Kind::feed : FeedSource::Kind::host;
      d.index = row.ids.empty() ? row.feed_row : static_cast<std::uint32_t>(r.tokens.size());
      d.feed_cells = row.feed_ring;
      d.feed_tag = row.feed_tag;
      d.mask = row.mask;
      d.adapter_slot = row.adapter;
      if (info().has_ssm_layers) {
        const std::uint32_t versions = info().max_depth + 1;
        std::uint32_t& latest = states_[row.slot];
        const std::uint32_t in = row.state_in.value_or(latest), out = row.state_out.value_or(in + 1);
        d.state_in = row.position == 0 ? DeviceRow::kNone : row.slot * versions + in % versions;
        d.state_out = row.slot * versions + out % versions;
        latest = out;
      }
      d.wants_token = row.wants;
      d.logits_row = row.wants ? outputs++ : DeviceRow::kNone;
      r.tokens.insert(r.tokens.end(), row.ids.begin(), row.ids.end());
      r.rows.push_back(d);
      auto& table = blocks_[row.slot];
      while (cover && table.size() * info().block_size < d.position + d.n_tokens) {
        if (free_.empty()) throw std::runtime_error("the rig is out of blocks");
        r.deltas.push_back({row.slot, static_cast<std::uint32_t>(table.size()), free_.back()});
        table.push_back(free_.back());
        free_.pop_back();
      }
    }
    StepView v;
    v.ticket = {1, ++step_};
    v.tag = v.ticket.tag();
    v.rows = r.rows;
    v.tokens = r.tokens;
    v.deltas = r.deltas;
    v.cells = r.cells;
    v.cell_arrays = cell_arrays_;
    v.upload = r.upload;
    r.ticket = v.ticket;
    r.tag = v.tag;
    TROUPE_TRY(auto logits, model_->decode_batch_fed(v, stream_));
    TROUPE_TRY(model_->argmax_batch_to_feed(logits, v, {r.readback, r.logits}, r.event, stream_));
    next_ring_ = (next_ring_ + 1) % rings_.size();
    return ring;
  }

  std::uint32_t tag(std::uint32_t ring) const { return rings_[ring].tag; }
  Ticket ticket(std::uint32_t ring) const { return rings_[ring].ticket; }
  Stream stream() const { return stream_; }
  void use_ring(std::uint32_t ring) { next_ring_ = ring; }  // for the next step

  // The KV of every block.
  std::vector<std::vector<std::byte>> read_kv() {
    const std::size_t bytes = model_->kv_block_bytes();
    std::vector<std::vector<std::byte>> out;
    auto* const memory = static_cast<std::byte*>(driver_->alloc_host_pinned(bytes).value());
    for (BlockId block = 0; block < info().kv_blocks; ++block) {
      EXPECT_TRUE(model_->copy_blocks_out({&block, 1}, memory, stream_));
      EXPECT_TRUE(driver_->record_event(rings_[next_ring_].event, stream_));
      EXPECT_TRUE(driver_->event_synchronize(rings_[next_ring_].event));
      out.emplace_back(memory, memory + bytes);
    }
    EXPECT_TRUE(driver_->free_host_pinned(memory, bytes));
    return out;
  }

  Result<void> synchronize(std::uint32_t ring) {
    rings_[ring].done = true;
    return driver_->event_synchronize(rings_[ring].event);
  }

  RigResult wait(std::uint32_t ring) {
    Ring& r = rings_[ring];
    if (auto e = synchronize(ring); !e) throw std::runtime_error(e.error().what);
    RigResult out;
    out.ring = ring;
    out.tag = r.tag;
    out.rows.assign(r.readback, r.readback + r.rows.size());
    for (const DeviceRow& row : r.rows) {
      auto& l = out.logits.emplace_back();
      if (row.wants_token)
        l.assign(r.logits + row.logits_row * std::size_t{info().vocab_size},
                 r.logits + (row.logits_row + 1) * std::size_t{info().vocab_size});
    }
    return out;
  }

  RigResult run(const std::vector<RigRow>& rows, bool cover = true) {
    auto ring = launch(rows, cover);
    if (!ring) throw std::runtime_error(ring.error().what);
    return wait(ring.value());
  }

 private:
  struct Ring {
    Event event = 0;
    DevicePtr cells = 0;
    Readback* readback = nullptr;
    float* logits = nullptr;
    void* upload = nullptr;
    Ticket ticket;
    std::uint32_t tag = 0;
    bool done = false;  // its event has come
    std::vector<DeviceRow> rows;
    std::vector<Token> tokens;
    std::vector<TableDelta> deltas;
  };
  std::size_t logits_bytes() const { return std::size_t{info().max_rows} * info().vocab_size * sizeof(float); }

  std::unique_ptr<Driver> driver_;
  std::unique_ptr<ModelDeviceFeed> model_;
  Stream stream_ = 0;
  std::vector<Ring> rings_;
  std::vector<DevicePtr> cell_arrays_;
  std::vector<std::uint32_t> free_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> blocks_;
  std::map<std::uint32_t, std::uint32_t> states_;  // by slot: the version that its last row wrote
  std::vector<TableDelta> pending_;                // for the next step
  std::uint32_t next_ring_ = 0;
  std::uint64_t step_ = 0;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace troupe::device
