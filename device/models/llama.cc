#include "device/models/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "device/host/copy_queue.h"
#include "device/models/device_memory.h"
#include "device/models/llama_adapters.h"
#include "device/models/llama_forward.h"
#include "device/models/llama_step.h"
#include "device/models/lora.h"
#include "kernels/host/host_kernels.h"
#include "kernels/kernels.h"

namespace troupe::device {

namespace {

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
  Result<void> sample_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) override {
    return argmax_batch_to_feed(logits, step, dst, event, stream);
  }
  Result<void> load_adapter(std::uint32_t slot, const std::string& path) override {
    TROUPE_TRY(auto adapter, LoraAdapter::open(path, config_));
    return adapters_.upload(slot, adapter);
  }
  Result<AdapterImage> read_adapter(std::uint32_t slot) override { return adapters_.read(slot); }
  Result<void> load_adapter_image(std::uint32_t slot, const AdapterImage& image) override {
    TROUPE_TRY(auto adapter, LoraAdapter::from_image(image.bytes, "an adapter of another replica", config_));
    return adapters_.upload(slot, adapter);
  }
  Result<void> show_adapter(std::uint32_t slot) override { return adapters_.show(slot); }
  Result<void> hide_adapter(std::uint32_t slot) override { return adapters_.hide(slot); }
  std::size_t kv_block_bytes() const override { return kernels_->kv_block_bytes(caches_.kv); }
  Result<void> copy_blocks_out(std::span<const BlockId> blocks, void* to, Stream stream) override {
    return copies_.enqueue(blocks, to, kv_block_bytes(), options_.kv_blocks, &LlamaOnHost::read_block, driver_, stream);
  }
  Result<void> copy_blocks_in(std::span<const BlockId> blocks, const void* from, Stream stream) override {
    return copies_.enqueue(blocks, const_cast<void*>(from), kv_block_bytes(), options_.kv_blocks, &LlamaOnHost::write_block, driver_,
                           stream);
  }
  std::size_t ssm_state_bytes() const override { return caches_.states.version_floats() * sizeof(float); }
  Result<void> copy_state_out(std::uint32_t version, std::size_t begin, std::size_t bytes, void* to, Stream stream) override {
    TROUPE_TRY(std::byte * state, state_at(caches_.states, version, begin, bytes));
    return driver_.copy_d2h_async(to, address(state), bytes, stream);
  }
  Result<void> copy_state_in(std::uint32_t version, std::size_t begin, std::size_t bytes, const void* from, Stream stream) override {
    TROUPE_TRY(std::byte * state, state_at(caches_.states, version, begin, bytes));
    return driver_.copy_h2d_async(address(state), from, bytes, stream);
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
    std::vector<kernels::LoraRun> lora_runs;
    std::vector<kernels::SampleRow> samples;
    std::atomic<int> queued{0};  // functions on the stream that have not returned
  };

  void forward(StepContext& c);
  void argmax(StepContext& c);
  void sample(StepContext& c);
  void read_block(BlockId block, std::byte* to) { kernels_->read_block(caches_.kv, block, to); }
  void write_block(BlockId block, std::byte* from) { kernels_->write_block(caches_.kv, block, from); }
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
  LlamaCaches caches_;
  kernels::BlockTables tables_;
  LlamaScratch scratch_;
  std::uint32_t* history_ = nullptr;  // FeedArgs::history
  LlamaAdapters adapters_;
  std::vector<StepContext> contexts_;
  std::size_t next_ = 0;
  StepContext* last_ = nullptr;
  CopyQueue<LlamaOnHost> copies_{*this};
};

Result<std::unique_ptr<LlamaModel>> LlamaModel::create(std::shared_ptr<const TensorSource> source, ModelConfig config,
                                                       const LlamaOptions& options, Driver& driver) {
  TROUPE_TRY(check(options));
  if (!kernels::supported(options.target)) {
    return Error{ErrorCode::bad_request,
                 fmt::format("this CPU does not have what the kernels of target {} need", kernels::name(options.target))};
  }
  TROUPE_TRY(auto weights, load_llama_weights(*source, config));
  auto model = std::make_unique<LlamaOnHost>(std::move(source), options, std::move(config), std::move(weights), driver);
  TROUPE_TRY(model->init());
  return std::unique_ptr<LlamaModel>(std::move(model));
}

Result<void> LlamaOnHost::init() {
  LlamaOptions& o = options_;
  const ModelConfig& c = config_;
  TROUPE_TRY(complete(o, c));
  // No kernel target in it: all targets of the host give the same bits.
  info_ = llama_info(c, weights_, o, o.exact ? "host/exact/kv-f32" : "host/int8x32/kv-f16");

  kernels::HostKernelsOptions k;
  k.exact = o.exact;
  k.threads = o.threads;
  k.target = o.target;
  k.max_rows = std::max(o.max_step_tokens, o.max_rows);
  k.max_cols = std::max({c.width, c.ffn, c.q_width(), c.delta.value_width()});
  k.max_context = o.context_limit;
  k.max_group = c.heads / c.kv_heads;
  k.block_size = o.block_size;
  k.max_lora_rank = o.max_loras == 0 ? 0 : o.max_lora_rank;
  kernels_ = kernels::make_host_kernels(k);

  caches_.kv = {nullptr, c.layers - c.recurrent_layers(), o.kv_blocks, o.block_size, c.kv_heads, c.head_dim};
  TROUPE_TRY(caches_.kv.data, memory_.get<std::byte>(kernels_->kv_bytes(caches_.kv)));
  TROUPE_TRY(caches_.states, llama_states(memory_, c, o));
  TROUPE_TRY(tables_, llama_tables(memory_, o));
  TROUPE_TRY(scratch_, llama_scratch(memory_, c, o));
  TROUPE_TRY(history_, memory_.get<std::uint32_t>(std::size_t{o.n_slots} * o.context_limit));
  TROUPE_TRY(adapters_.init(memory_, c, o.max_loras, o.max_lora_rank));
  contexts_ = std::vector<StepContext>(o.max_depth + 1);
  for (StepContext& context : contexts_) {
    context.model = this;
    context.rows.resize(o.max_rows);
    context.readback.resize(o.max_rows);
    context.lora_runs.resize(o.max_rows);
    context.samples.resize(o.max_rows);
    context.cell_arrays.resize(max_cell_arrays(o));
  }
  return success();
}

Result<DevicePtr> LlamaOnHost::decode_batch_fed(const StepView& step, Stream stream) {
  TROUPE_TRY(auto n_tokens, check_step(step, options_, config_, tables_, adapters_));
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
  const StepShape shape = to_kernels(v, c.rows.data(), c.lora_runs.data());
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
  feed.history = history_;
  feed.history_stride = options_.context_limit;
  llama_forward(*kernels_, config_, weights_, config_.inv_freq.data(), scratch_, caches_, feed,
                {{c.lora_runs.data(), shape.n_lora_runs}, &adapters_}, c.n_tokens, shape.n_outputs);
}

void LlamaOnHost::argmax(StepContext& c) {
  const auto n = static_cast<std::uint32_t>(c.view.rows.size());
  kernels_->argmax(c.rows.data(), n, scratch_.logits, config_.vocab, c.view.tag, at<kernels::Cell>(c.view.cells), c.readback.data(),
                   c.dst.logits);
  if (!c.view.samples.empty()) sample(c);
  if (n != 0) std::memcpy(static_cast<void*>(c.dst.rows), c.readback.data(), n * sizeof(Readback));
}

void LlamaOnHost::sample(StepContext& c) {
  const StepView& v = c.view;
  for (std::size_t i = 0; i < v.samples.size(); ++i) c.samples[i] = to_kernels(v.samples[i]);
  kernels::SampleArgs args;
  args.rows = c.rows.data();
  args.samples = c.samples.data();
  args.n = static_cast<std::uint32_t>(v.samples.size());
  args.logits = scratch_.logits;
  args.vocab = config_.vocab;
  args.tag = v.tag;
  args.biases = reinterpret_cast<const kernels::IdBias*>(v.biases.data());
  args.ids = v.tokens.data();
  args.history = history_;
  args.history_stride = options_.context_limit;
  args.cells = at<kernels::Cell>(v.cells);
  args.readback = c.readback.data();
  args.logprobs = reinterpret_cast<kernels::RowLogprobs*>(c.dst.logprobs);
  kernels_->sample(args);
}

}  // namespace troupe::device
