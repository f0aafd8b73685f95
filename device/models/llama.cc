#include "device/models/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/host/copy_queue.h"
#include "device/models/device_memory.h"
#include "device/models/llama_adapters.h"
#include "device/models/llama_forward.h"
#include "device/models/lora.h"
#include "kernels/host/host_kernels.h"
#include "kernels/kernels.h"

namespace troupe::device {

namespace {

static_assert(sizeof(kernels::RowReadback) == sizeof(Readback) && offsetof(kernels::RowReadback, id) == offsetof(Readback, id) &&
              offsetof(kernels::RowReadback, status) == offsetof(Readback, status) &&
              offsetof(kernels::RowReadback, tag) == offsetof(Readback, tag));
static_assert(static_cast<int>(kernels::Status::no_token) == static_cast<int>(CellStatus::no_token) &&
              static_cast<int>(kernels::Status::stale_feed) == static_cast<int>(CellStatus::stale_feed) &&
              static_cast<int>(kernels::Status::poisoned) == static_cast<int>(CellStatus::poisoned));
static_assert(kernels::kNone == RowMask::kNone && kernels::kNone == DeviceRow::kNone);

Error bad_plan(std::string what) { return {ErrorCode::bad_plan, std::move(what)}; }

}  // namespace

class LlamaOnHost final : public LlamaModel {
 public:
  LlamaOnHost(std::shared_ptr<const TensorSource> source, const LlamaOptions& options, ModelConfig config, LlamaWeights weights,
              Driver& driver)
      : source_(std::move(source)),
        options_(options),
        config_(std::move(config)),
        weights_(std::move(weights)),
        driver_(driver),
        memory_(driver) {}

  Result<void> init();

  const ModelInfo& info() const override { return info_; }
  std::size_t cells_bytes() const override { return options_.max_rows * sizeof(kernels::Cell); }
  bool supports_device_token_feed() const override { return true; }
  Result<DevicePtr> decode_batch_fed(const StepView& step, Stream stream) override;
  Result<void> argmax_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) override;
  Result<void> load_adapter(std::uint32_t slot, const std::string& path) override {
    TROUPE_TRY(auto adapter, LoraAdapter::open(path, config_));
    return adapters_.upload(slot, adapter);
  }
  Result<void> show_adapter(std::uint32_t slot) override { return adapters_.show(slot); }
  Result<void> hide_adapter(std::uint32_t slot) override { return adapters_.hide(slot); }
  std::size_t kv_block_bytes() const override { return kernels_->kv_block_bytes(kv_); }
  Result<void> copy_blocks_out(std::span<const BlockId> blocks, void* to, Stream stream) override {
    return copies_.enqueue(blocks, to, kv_block_bytes(), options_.kv_blocks, &LlamaOnHost::read_block, driver_, stream);
  }
  Result<void> copy_blocks_in(std::span<const BlockId> blocks, const void* from, Stream stream) override {
    return copies_.enqueue(blocks, const_cast<void*>(from), kv_block_bytes(), options_.kv_blocks, &LlamaOnHost::write_block, driver_,
                           stream);
  }

 private:
  // Everything a step in flight needs, captured when it is enqueued.
  struct StepContext {
    LlamaOnHost* model = nullptr;
    StepView view;
    ReadbackTarget dst;
    std::uint32_t n_tokens = 0;
    std::vector<kernels::StepRow> rows;
    std::vector<const kernels::Cell*> cell_arrays;
    std::vector<kernels::RowReadback> readback;
    std::vector<kernels::LoraRun> lora_runs;  // the first n_lora_runs
    std::uint32_t n_lora_runs = 0;
    std::atomic<int> queued{0};  // functions on the stream that have not returned
  };

  void fill_info();
  Result<std::uint32_t> check(const StepView& step) const;  // tokens over all rows
  void forward(StepContext& c);
  void argmax(StepContext& c);
  void read_block(BlockId block, std::byte* to) { kernels_->read_block(kv_, block, to); }
  void write_block(BlockId block, std::byte* from) { kernels_->write_block(kv_, block, from); }
  template <void (LlamaOnHost::*F)(StepContext&)>
  static ErrorCode call(void* context) {
    auto* c = static_cast<StepContext*>(context);
    (c->model->*F)(*c);
    c->queued.fetch_sub(1, std::memory_order_release);
    return ErrorCode::none;
  }

  std::shared_ptr<const TensorSource> source_;  // what weights_ points into
  LlamaOptions options_;
  ModelConfig config_;
  LlamaWeights weights_;
  Driver& driver_;
  ModelInfo info_;
  DeviceMemory memory_;
  std::unique_ptr<kernels::Kernels> kernels_;
  kernels::KvCache kv_;
  kernels::BlockTables tables_;
  LlamaScratch scratch_;
  LlamaAdapters adapters_;
  std::vector<StepContext> contexts_;
  std::size_t next_ = 0;
  StepContext* last_ = nullptr;
  CopyQueue<LlamaOnHost> copies_{*this};
};

Result<std::unique_ptr<LlamaModel>> LlamaModel::create(std::shared_ptr<const TensorSource> source, ModelConfig config,
                                                       const LlamaOptions& options, Driver& driver) {
  const auto positive = [](std::uint32_t n, const char* what) -> Result<void> {
    if (n == 0 || n > (1u << 24)) return Error{ErrorCode::bad_request, fmt::format("{} is {}; 1 to {} is expected", what, n, 1u << 24)};
    return success();
  };
  TROUPE_TRY(positive(options.threads, "threads"));
  TROUPE_TRY(positive(options.kv_blocks, "kv_blocks"));
  TROUPE_TRY(positive(options.block_size, "block_size"));
  TROUPE_TRY(positive(options.max_rows, "max_rows"));
  TROUPE_TRY(positive(options.max_step_tokens, "max_step_tokens"));
  TROUPE_TRY(positive(options.n_slots, "n_slots"));
  TROUPE_TRY(positive(options.max_depth, "max_depth"));
  if (options.max_loras != 0) {
    TROUPE_TRY(positive(options.max_loras, "max_loras"));
    TROUPE_TRY(positive(options.max_lora_rank, "max_lora_rank"));
  }
  if (!kernels::supported(options.target)) {
    return Error{ErrorCode::bad_request,
                 fmt::format("this CPU does not have what the kernels of target {} need", kernels::name(options.target))};
  }
  TROUPE_TRY(auto weights, load_llama_weights(*source, config));
  auto model = std::make_unique<LlamaOnHost>(std::move(source), options, std::move(config), std::move(weights), driver);
  TROUPE_TRY(model->init());
  return std::unique_ptr<LlamaModel>(std::move(model));
}

void LlamaOnHost::fill_info() {
  std::set<std::string> formats;
  const auto add = [&](const kernels::Weight& w) { formats.insert(kernels::name(w.format)); };
  for (const LlamaLayer& l : weights_.layers) {
    for (const auto* w : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) add(*w);
  }
  add(weights_.embedding);
  add(weights_.output);
  info_.name = config_.name;
  info_.architecture = name(config_.architecture);
  // No kernel target in it: all targets of the host give the same bits.
  info_.arithmetic_id = options_.exact ? "host/exact/kv-f32" : "host/int8x32/kv-f16";
  for (const std::string& f : formats) info_.arithmetic_id += "/" + f;
  info_.vocab_size = config_.vocab;
  info_.n_layers = config_.layers;
  info_.context_length = options_.context_limit;
  info_.block_size = options_.block_size;
  info_.window = config_.sliding_window < options_.context_limit ? config_.sliding_window : 0;
  info_.kv_blocks = options_.kv_blocks;
  info_.n_slots = options_.n_slots;
  info_.max_depth = options_.max_depth;
  info_.max_rows = options_.max_rows;
  info_.max_step_tokens = options_.max_step_tokens;
  info_.max_logits_rows = options_.max_logits_rows;
  info_.supports_device_token_feed = true;
  info_.has_ssm_layers = false;
  info_.eos_ids = config_.eos_ids;
  info_.tokens = options_.tokens;
  info_.max_loras = options_.max_loras;
  info_.max_lora_rank = options_.max_loras == 0 ? 0 : options_.max_lora_rank;
}

Result<void> LlamaOnHost::init() {
  LlamaOptions& o = options_;
  const ModelConfig& c = config_;
  o.context_limit = o.context_limit == 0 ? c.context : std::min(o.context_limit, c.context);
  fill_info();

  kernels::HostKernelsOptions k;
  k.exact = o.exact;
  k.threads = o.threads;
  k.target = o.target;
  k.max_rows = std::max(o.max_step_tokens, o.max_rows);
  k.max_cols = std::max({c.width, c.ffn, c.q_width()});
  k.max_context = o.context_limit;
  k.max_group = c.heads / c.kv_heads;
  k.block_size = o.block_size;
  k.max_lora_rank = o.max_loras == 0 ? 0 : o.max_lora_rank;
  kernels_ = kernels::make_host_kernels(k);

  kv_ = {nullptr, c.layers, o.kv_blocks, o.block_size, c.kv_heads, c.head_dim};
  TROUPE_TRY(kv_.data, memory_.get<std::byte>(kernels_->kv_bytes(kv_)));
  tables_ = {nullptr, o.n_slots, (o.context_limit + o.block_size - 1) / o.block_size};
  TROUPE_TRY(tables_.entries, memory_.get<std::uint32_t>(static_cast<std::size_t>(o.n_slots) * tables_.blocks_per_slot));

  const std::size_t n = o.max_step_tokens, r = o.max_rows;
  TROUPE_TRY(scratch_.tokens, memory_.get<kernels::StepToken>(n));
  TROUPE_TRY(scratch_.angles, memory_.get<float>(n * c.rotated));
  TROUPE_TRY(scratch_.x, memory_.get<float>(n * c.width));
  TROUPE_TRY(scratch_.h, memory_.get<float>(n * c.width));
  TROUPE_TRY(scratch_.qkv, memory_.get<float>(n * (c.q_width() + 2 * c.kv_width())));
  TROUPE_TRY(scratch_.attended, memory_.get<float>(n * c.q_width()));
  TROUPE_TRY(scratch_.gate, memory_.get<float>(n * c.ffn));
  TROUPE_TRY(scratch_.up, memory_.get<float>(n * c.ffn));
  TROUPE_TRY(scratch_.outputs, memory_.get<float>(r * c.width));
  TROUPE_TRY(scratch_.logits, memory_.get<float>(r * c.vocab));

  TROUPE_TRY(adapters_.init(memory_, c, o.max_loras, o.max_lora_rank));
  contexts_ = std::vector<StepContext>(o.max_depth + 1);
  for (StepContext& context : contexts_) {
    context.model = this;
    context.rows.resize(o.max_rows);
    context.readback.resize(o.max_rows);
    context.lora_runs.resize(o.max_rows);
    context.cell_arrays.resize(2 * (o.max_depth + 1));
  }
  return success();
}

Result<std::uint32_t> LlamaOnHost::check(const StepView& step) const {
  const LlamaOptions& o = options_;
  if (step.rows.size() > o.max_rows) return bad_plan(fmt::format("{} rows in a step; the model takes {}", step.rows.size(), o.max_rows));
  if (step.cell_arrays.size() > contexts_[0].cell_arrays.size()) {
    return bad_plan(fmt::format("{} cell arrays; the model takes {}", step.cell_arrays.size(), contexts_[0].cell_arrays.size()));
  }
  for (const TableDelta& d : step.deltas) {
    if (d.slot >= o.n_slots || d.index >= tables_.blocks_per_slot || (d.block >= o.kv_blocks && d.block != kNoBlock)) {
      return bad_plan(fmt::format("table change [{}][{}] = {} is outside {} slots of {} entries, {} blocks", d.slot, d.index, d.block,
                                  o.n_slots, tables_.blocks_per_slot, o.kv_blocks));
    }
  }
  std::uint64_t tokens = 0;
  for (std::size_t r = 0; r < step.rows.size(); ++r) {
    const DeviceRow& row = step.rows[r];
    tokens += row.n_tokens;
    const std::uint64_t end = static_cast<std::uint64_t>(row.position) + row.n_tokens;
    if (row.slot >= o.n_slots) return bad_plan(fmt::format("row {}: slot {} of {}", r, row.slot, o.n_slots));
    if (row.n_tokens == 0 || end > o.context_limit) {
      return bad_plan(
          fmt::format("row {}: positions {} to {} are not 1 or more inside the context of {}", r, row.position, end, o.context_limit));
    }
    if (row.adapter_slot != 0 && !adapters_.in_table(row.adapter_slot)) {
      return Error{o.max_loras == 0 ? ErrorCode::unsupported : ErrorCode::bad_plan,
                   fmt::format("row {}: adapter slot {} is not in the table of {} adapters", r, row.adapter_slot, o.max_loras)};
    }
    if (row.logits_row != DeviceRow::kNone && (!row.wants_token || row.logits_row >= o.max_logits_rows)) {
      return bad_plan(fmt::format("row {}: logits row {} of {}", r, row.logits_row, o.max_logits_rows));
    }
    if (row.source == FeedSource::Kind::feed) {
      if (row.n_tokens != 1 || row.index >= o.max_rows || row.feed_cells >= step.cell_arrays.size()) {
        return bad_plan(fmt::format("row {}: fed with {} tokens from cell {} of array {}", r, row.n_tokens, row.index, row.feed_cells));
      }
      continue;
    }
    if (static_cast<std::uint64_t>(row.index) + row.n_tokens > step.tokens.size()) {
      return bad_plan(fmt::format("row {}: ids {} to {} of {}", r, row.index, static_cast<std::uint64_t>(row.index) + row.n_tokens,
                                  step.tokens.size()));
    }
    for (const Token id : step.tokens.subspan(row.index, row.n_tokens)) {
      if (id >= config_.vocab) return bad_plan(fmt::format("row {}: id {} is outside the vocabulary of {}", r, id, config_.vocab));
    }
  }
  if (tokens > o.max_step_tokens) return bad_plan(fmt::format("{} tokens in a step; the model takes {}", tokens, o.max_step_tokens));
  return static_cast<std::uint32_t>(tokens);
}

Result<DevicePtr> LlamaOnHost::decode_batch_fed(const StepView& step, Stream stream) {
  TROUPE_TRY(auto n_tokens, check(step));
  StepContext& c = contexts_[next_];
  if (c.queued.load(std::memory_order_acquire) != 0) {
    return Error{ErrorCode::ring_exhausted, fmt::format("more than {} steps in flight: settle one first", contexts_.size())};
  }
  c.view = step;
  c.n_tokens = n_tokens;
  c.queued.store(1, std::memory_order_relaxed);
  if (auto r = driver_.enqueue_host_function({&call<&LlamaOnHost::forward>, &c}, stream); !r) {
    c.queued.store(0, std::memory_order_relaxed);
    return r.error();
  }
  last_ = &c;
  next_ = (next_ + 1) % contexts_.size();
  return address(scratch_.logits);
}

Result<void> LlamaOnHost::argmax_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) {
  if (last_ == nullptr || last_->view.ticket != step.ticket || logits != address(scratch_.logits)) {
    return bad_plan("argmax_batch_to_feed needs the step, and the handle, of the decode_batch_fed before it");
  }
  StepContext& c = *std::exchange(last_, nullptr);
  c.dst = dst;
  c.queued.fetch_add(1, std::memory_order_relaxed);
  if (auto r = driver_.enqueue_host_function({&call<&LlamaOnHost::argmax>, &c}, stream); !r) {
    c.queued.fetch_sub(1, std::memory_order_relaxed);
    return r.error();
  }
  return driver_.record_event(event, stream);
}

void LlamaOnHost::forward(StepContext& c) {
  const StepView& v = c.view;
  for (const TableDelta& d : v.deltas) {
    const kernels::TableChange change{d.slot, d.index, d.block};
    kernels_->apply_changes(tables_, &change, 1);
  }
  std::uint32_t n_outputs = 0, token = 0;
  c.n_lora_runs = 0;
  for (std::size_t r = 0; r < v.rows.size(); ++r) {
    const DeviceRow& row = v.rows[r];
    c.rows[r] = {row.slot,     row.position, row.n_tokens, row.source == FeedSource::Kind::feed ? 1u : 0u, row.index,     row.feed_cells,
                 row.feed_tag, row.mask.a,   row.mask.b,   row.wants_token ? n_outputs++ : kernels::kNone, row.logits_row};
    if (row.adapter_slot != 0) {
      kernels::LoraRun* last = c.n_lora_runs == 0 ? nullptr : &c.lora_runs[c.n_lora_runs - 1];
      if (last != nullptr && last->slot == row.adapter_slot && last->first_token + last->n_tokens == token) {
        last->n_tokens += row.n_tokens;
      } else {
        c.lora_runs[c.n_lora_runs++] = {token, row.n_tokens, row.adapter_slot};
      }
    }
    token += row.n_tokens;
  }
  for (std::size_t i = 0; i < v.cell_arrays.size(); ++i) c.cell_arrays[i] = at<const kernels::Cell>(v.cell_arrays[i]);
  kernels::FeedArgs feed;
  feed.rows = c.rows.data();
  feed.n_rows = static_cast<std::uint32_t>(v.rows.size());
  feed.ids = v.tokens.data();
  feed.cell_arrays = c.cell_arrays.data();
  feed.cells = at<kernels::Cell>(v.cells);
  feed.tag = v.tag;
  feed.vocab = config_.vocab;
  feed.block_size = options_.block_size;
  feed.n_blocks = options_.kv_blocks;
  feed.window = config_.sliding_window;
  feed.tables = tables_;
  feed.tokens = scratch_.tokens;
  feed.readback = c.readback.data();
  llama_forward(*kernels_, config_, weights_, config_.inv_freq.data(), scratch_, kv_, feed,
                {{c.lora_runs.data(), c.n_lora_runs}, &adapters_}, c.n_tokens, n_outputs);
}

void LlamaOnHost::argmax(StepContext& c) {
  const auto n = static_cast<std::uint32_t>(c.view.rows.size());
  kernels_->argmax(c.rows.data(), n, scratch_.logits, config_.vocab, c.view.tag, at<kernels::Cell>(c.view.cells), c.readback.data(),
                   c.dst.logits);
  if (n != 0) std::memcpy(static_cast<void*>(c.dst.rows), c.readback.data(), n * sizeof(Readback));
}

}  // namespace troupe::device
