#include "device/models/llama_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/models/device_memory.h"
#include "device/models/device_weights.h"
#include "device/models/graph_cache.h"
#include "device/models/llama_forward.h"
#include "device/models/lora.h"
#include "device/models/upload.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/families.h"
#include "kernels/kernels.h"

namespace troupe::device {

namespace {

constexpr std::size_t kPartialBytes = 64u << 20;  // of scratch for attention, at most
constexpr std::uint64_t kMostFailedCaptures = 3;  // then no more are tried

Error bad_plan(std::string what) { return {ErrorCode::bad_plan, std::move(what)}; }

// Where a step's parameters lie in its upload memory, and in the device's copy of it. Graphs know where the rows are; behind
// them each step's lists follow each other, so that the copy ends behind what there is.
struct UploadLayout {
  std::size_t cell_arrays = 0, rows = 0, ids = 0, bytes = 0;
  std::size_t most_ids = 0, most_changes = 0;

  UploadLayout() = default;
  UploadLayout(const LlamaOptions& o, const kernels::BlockTables& tables)
      : most_ids(std::size_t{o.max_step_tokens} + max_sample_words(o)), most_changes(std::size_t{o.max_rows} * tables.blocks_per_slot) {
    rows = take(cell_arrays, max_cell_arrays(o) * sizeof(DevicePtr));
    ids = take(rows, o.max_rows * sizeof(kernels::StepRow));
    bytes = Lists(ids, most_ids, most_changes, o.max_rows, max_sample_words(o) / 2).end;
  }
  struct Lists {
    std::size_t changes, samples, biases, end;
    Lists(std::size_t ids, std::size_t n_ids, std::size_t n_changes, std::size_t n_samples, std::size_t n_biases) {
      changes = take(ids, n_ids * sizeof(std::uint32_t));
      samples = take(changes, n_changes * sizeof(kernels::TableChange));
      biases = take(samples, n_samples * sizeof(kernels::SampleRow));
      end = take(biases, n_biases * sizeof(kernels::IdBias));
    }
  };
  Lists lists(const StepView& step) const { return {ids, step.tokens.size(), step.deltas.size(), step.samples.size(), step.biases.size()}; }

 private:
  static std::size_t take(std::size_t at, std::size_t n) { return (at + n + 63) / 64 * 64; }
};

}  // namespace

class LlamaOnCuda final : public LlamaCudaModel {
 public:
  LlamaOnCuda(const LlamaOptions& options, ModelConfig config, Driver& driver)
      : options_(options),
        config_(std::move(config)),
        driver_(driver),
        memory_(driver),
        graphs_(options.max_graphs, std::size_t{options.max_depth} + 1) {}
  ~LlamaOnCuda() override {
    for (const Graph graph : graphs_.take_all()) (void)driver_.destroy_graph(graph);
    for (const Graph graph : left_over_) (void)driver_.destroy_graph(graph);
  }

  Result<void> init(const LlamaWeights& weights);

  const ModelInfo& info() const override { return info_; }
  std::size_t cells_bytes() const override { return options_.max_rows * sizeof(kernels::Cell); }
  std::size_t upload_bytes() const override { return layout_.bytes; }
  bool supports_device_token_feed() const override { return true; }
  Result<DevicePtr> decode_batch_fed(const StepView& step, Stream stream) override;
  Result<void> argmax_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) override;
  Result<void> sample_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) override {
    return argmax_batch_to_feed(logits, step, dst, event, stream);
  }
  void fed_step_settled(Ticket ticket) override;
  Result<void> load_adapter(std::uint32_t slot, const std::string& path) override;
  Result<AdapterImage> read_adapter(std::uint32_t slot) override;
  Result<void> load_adapter_image(std::uint32_t slot, const AdapterImage& image) override;
  Result<void> show_adapter(std::uint32_t slot) override { return adapters_.show(slot); }
  Result<void> hide_adapter(std::uint32_t slot) override { return adapters_.hide(slot); }
  std::size_t kv_block_bytes() const override { return kernels::cuda_kv_bytes(kv_) / kv_.n_blocks; }
  Result<void> copy_blocks_out(std::span<const BlockId> blocks, void* to, Stream stream) override;
  Result<void> copy_blocks_in(std::span<const BlockId> blocks, const void* from, Stream stream) override;
  GraphFigures graph_figures() const override { return figures_; }

 private:
  // A step whose upload memory and graph are in use.
  struct Flight {
    Ticket ticket;
    const void* upload = nullptr;  // none: free
  };
  // Of decode_batch_fed, for the argmax_batch_to_feed that follows.
  struct Forwarded {
    Ticket ticket;
    std::uint32_t n_rows = 0;
    std::uint32_t n_logits = 0;
    std::uint32_t n_logprobs = 0;
  };

  Result<void> on_stream(Stream stream);
  Result<void> open_cublaslt(std::uint32_t most_rows);
  Result<void> layers_launched(Stream stream);
  Result<Flight*> take_flight(const StepView& step);
  bool by_graph(const StepShape& shape) const { return options_.max_graphs != 0 && shape.decode && shape.n_lora_runs == 0; }
  Result<void> forward(const StepView& step, const StepShape& shape, std::uint32_t n_rows, std::uint32_t n_tokens, Stream stream);
  Result<void> replay(std::uint32_t size, Ticket ticket, const kernels::FeedArgs& feed, Stream stream);
  void sample(const StepView& step);
  Result<std::optional<Graph>> capture(std::uint32_t size, const kernels::FeedArgs& feed, Stream stream);
  void layers(const kernels::FeedArgs& feed, std::uint32_t n_tokens, std::uint32_t n_outputs, std::uint32_t n_lora_runs = 0);
  void drop(Graph graph);
  Result<void> check_copy(std::span<const BlockId> blocks) const;
  template <class T>
  const T* param(std::size_t offset) const {
    return reinterpret_cast<const T*>(params_ + offset);
  }

  LlamaOptions options_;
  ModelConfig config_;
  Driver& driver_;
  ModelInfo info_;
  DeviceMemory memory_;
  LlamaWeights weights_;  // on the device
  const double* inv_freq_ = nullptr;
  kernels::CudaKernelsOptions kernel_options_;
  std::unique_ptr<kernels::CublasLt> cublaslt_;  // null: our own kernels make every product
  std::unique_ptr<kernels::Kernels> kernels_;    // on native_
  void* native_ = nullptr;
  kernels::KvCache kv_;
  kernels::BlockTables tables_;
  LlamaScratch scratch_;
  LlamaAdapters adapters_;
  std::vector<kernels::LoraRun> lora_runs_;  // of the step that is being enqueued
  UploadLayout layout_;
  std::byte* params_ = nullptr;               // the device's copy of a step's parameters
  kernels::RowReadback* readback_ = nullptr;  // [max_rows]
  float* logits_out_ = nullptr;               // [max_logits_rows][vocab]
  kernels::RowLogprobs* logprobs_ = nullptr;  // [max_rows]
  std::uint32_t* history_ = nullptr;          // kernels::FeedArgs::history
  std::vector<Flight> flights_;
  std::optional<Forwarded> forwarded_;
  GraphCache graphs_;
  std::vector<Graph> left_over_;  // the driver did not take them back
  GraphFigures figures_;
};

Result<std::unique_ptr<LlamaCudaModel>> LlamaCudaModel::create(std::shared_ptr<const TensorSource> source, ModelConfig config,
                                                               const LlamaOptions& options, Driver& driver) {
  TROUPE_TRY(check(options));
  if (options.exact) {
    return Error{ErrorCode::unsupported,
                 driver.name() + " computes in BF16 with 32-bit sums: there is no exact mode; leave it out, or use host:0"};
  }
  if (config.head_dim % 2 != 0 || config.head_dim > 256) {
    return Error{ErrorCode::unsupported,
                 fmt::format("heads of {} elements: {} takes even sizes up to 256", config.head_dim, driver.name())};
  }
  if (config.recurrent_layers() != 0 || config.gated_attention) {
    return Error{ErrorCode::unsupported,
                 fmt::format("{} models run on the host only in this version: use host:0", name(config.architecture))};
  }
  TROUPE_TRY(const auto weights, load_llama_weights(*source, config));
  auto model = std::make_unique<LlamaOnCuda>(options, std::move(config), driver);
  TROUPE_TRY(model->init(weights));
  return std::unique_ptr<LlamaCudaModel>(std::move(model));
}

Result<void> LlamaOnCuda::init(const LlamaWeights& weights) {
  LlamaOptions& o = options_;
  const ModelConfig& c = config_;
  o.context_limit = o.context_limit == 0 ? c.context : std::min(o.context_limit, c.context);
  TROUPE_TRY(const auto target, driver_.kernel_target());
  // How one mma rounds inside is the machine's own.
  info_ = llama_info(c, weights, o, "cuda/" + target + "/bf16/kv-bf16");
  info_.streams = 2;

  TROUPE_TRY(weights_, on_device(weights, c, memory_, driver_));
  TROUPE_TRY(double* const inv_freq, memory_.get<double>(c.inv_freq.size()));
  const UploadPiece frequencies{address(inv_freq), c.inv_freq.data(), c.inv_freq.size() * sizeof(double)};
  TROUPE_TRY(upload(driver_, {&frequencies, 1}));
  inv_freq_ = inv_freq;

  kv_ = {nullptr, c.layers, o.kv_blocks, o.block_size, c.kv_heads, c.head_dim};
  TROUPE_TRY(kv_.data, memory_.get<std::byte>(kernels::cuda_kv_bytes(kv_)));
  TROUPE_TRY(tables_, llama_tables(memory_, o));
  TROUPE_TRY(scratch_, llama_scratch(memory_, c, o));
  layout_ = UploadLayout(o, tables_);
  TROUPE_TRY(params_, memory_.get<std::byte>(layout_.bytes));
  TROUPE_TRY(readback_, memory_.get<kernels::RowReadback>(o.max_rows));
  TROUPE_TRY(logprobs_, memory_.get<kernels::RowLogprobs>(o.max_rows));
  TROUPE_TRY(history_, memory_.get<std::uint32_t>(std::size_t{o.n_slots} * o.context_limit));
  TROUPE_TRY(kernel_options_.sample_work, memory_.get<float>(std::size_t{o.max_rows} * c.vocab));
  TROUPE_TRY(kernel_options_.sample_counts, memory_.get<std::uint32_t>(std::size_t{o.max_rows} * c.vocab));
  TROUPE_TRY(logits_out_, memory_.get<float>(std::size_t{o.max_logits_rows} * c.vocab));

  const std::size_t a_token = kernels::attention_partial_floats(1, c.heads, c.head_dim, o.context_limit);
  const std::size_t most = std::max<std::size_t>(kPartialBytes / sizeof(float) / a_token, 1);
  kernel_options_.max_context = o.context_limit;
  kernel_options_.max_decode_tokens = static_cast<std::uint32_t>(std::min<std::size_t>({o.max_rows, 64, most}));
  TROUPE_TRY(kernel_options_.partial, memory_.get<float>(a_token * kernel_options_.max_decode_tokens));

  TROUPE_TRY(adapters_.init(memory_, c, o.max_loras, o.max_lora_rank));
  if (o.max_loras != 0) {
    kernel_options_.max_lora_rank = o.max_lora_rank;
    TROUPE_TRY(kernel_options_.lora_shrunk, memory_.get<float>(kernels::lora_scratch_floats(o.max_step_tokens, o.max_lora_rank)));
  }
  if (o.gemm == Gemm::cublaslt) {
    TROUPE_TRY(open_cublaslt(std::max(o.max_step_tokens, o.max_rows)));
  }
  lora_runs_.resize(o.max_rows);
  flights_.resize(std::size_t{o.max_depth} + 1);
  return success();
}

Result<void> LlamaOnCuda::open_cublaslt(std::uint32_t most_rows) {
  const auto bf16 = [](const kernels::Weight& w) { return w.format == kernels::Format::bf16; };
  bool any = bf16(weights_.output);
  for (const LlamaLayer& l : weights_.layers)
    for (const auto* w : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) any = any || bf16(*w);
  if (!any) {
    return Error{ErrorCode::unsupported, "cuBLASLt would make the products of BF16 weights, and this model has none (" +
                                             info_.arithmetic_id +
                                             "): leave --gemm cublaslt out; quantized weights stay with our own kernels"};
  }
  auto opened = kernels::open_cublaslt(options_.cublaslt);
  if (opened.library == nullptr) {
    return Error{ErrorCode::unsupported, "--gemm cublaslt: " + opened.why +
                                             "; install cuBLAS of CUDA 12 or 13, name its libcublasLt in TROUPE_CUBLASLT, or leave the "
                                             "option out: our own kernels need no library"};
  }
  cublaslt_ = std::move(opened.library);
  const std::size_t widest = std::max({config_.width, config_.q_width(), config_.ffn});
  TROUPE_TRY(kernel_options_.rounded, memory_.get<std::uint16_t>(most_rows * widest));
  TROUPE_TRY(std::byte* const workspace, memory_.get<std::byte>(kernels::kCublasLtWorkspace));
  cublaslt_->use_workspace(workspace);
  kernel_options_.cublaslt = cublaslt_.get();
  info_.arithmetic_id += "/cublaslt";
  return success();
}

// Of layers(): whether all of it was launched.
Result<void> LlamaOnCuda::layers_launched(Stream stream) {
  TROUPE_TRY(driver_.launched(stream));
  if (cublaslt_ == nullptr) return success();
  if (std::string failure = cublaslt_->take_failure(); !failure.empty()) return Error{ErrorCode::device_failed, std::move(failure)};
  return success();
}

// By a stream of its own; what it writes no step in flight reads.
Result<void> LlamaOnCuda::load_adapter(std::uint32_t slot, const std::string& path) {
  TROUPE_TRY(const auto adapter, LoraAdapter::open(path, config_));
  TROUPE_TRY(driver_.bind_thread());
  return adapters_.upload(slot, adapter, [this](std::span<const UploadPiece> pieces) { return upload(driver_, pieces); });
}

Result<void> LlamaOnCuda::load_adapter_image(std::uint32_t slot, const AdapterImage& image) {
  TROUPE_TRY(const auto adapter, LoraAdapter::from_image(image.bytes, "an adapter of another replica", config_));
  TROUPE_TRY(driver_.bind_thread());
  return adapters_.upload(slot, adapter, [this](std::span<const UploadPiece> pieces) { return upload(driver_, pieces); });
}

Result<AdapterImage> LlamaOnCuda::read_adapter(std::uint32_t slot) {
  TROUPE_TRY(driver_.bind_thread());
  return adapters_.read(slot, [this](std::span<const DownloadPiece> pieces) { return download(driver_, pieces); });
}

// The kernels are launched on the vendor's stream.
Result<void> LlamaOnCuda::on_stream(Stream stream) {
  TROUPE_TRY(void* const native, driver_.native_stream(stream));
  if (kernels_ != nullptr && native == native_) return success();
  for (const Graph graph : graphs_.take_all()) drop(graph);  // of the stream that was there before, which is gone
  native_ = kernel_options_.stream = native;
  kernels_ = kernels::make_cuda_kernels(kernel_options_);
  return success();
}

Result<LlamaOnCuda::Flight*> LlamaOnCuda::take_flight(const StepView& step) {
  if (step.upload == nullptr) return bad_plan("the step brings no upload memory: this model needs upload_bytes() of it");
  Flight* free = nullptr;
  for (Flight& f : flights_) {
    if (f.upload == step.upload) {
      return Error{ErrorCode::ring_exhausted, "the step's upload memory is in use by " + label(f.ticket) + ", which has not settled"};
    }
    if (f.upload == nullptr) free = &f;
  }
  if (free == nullptr)
    return Error{ErrorCode::ring_exhausted, fmt::format("more than {} steps in flight: settle one first", flights_.size())};
  *free = {step.ticket, step.upload};
  return free;
}

void LlamaOnCuda::fed_step_settled(Ticket ticket) {
  graphs_.settled(ticket);
  for (Flight& f : flights_) {
    if (f.upload != nullptr && f.ticket == ticket) f = {};
  }
}

Result<DevicePtr> LlamaOnCuda::decode_batch_fed(const StepView& step, Stream stream) {
  forwarded_.reset();
  TROUPE_TRY(const auto n_tokens, check_step(step, options_, config_, tables_, adapters_));
  if (step.deltas.size() > layout_.most_changes || step.tokens.size() > layout_.most_ids) {
    return bad_plan(fmt::format("{} table changes and {} ids in a step; the model takes {} and {}", step.deltas.size(), step.tokens.size(),
                                layout_.most_changes, layout_.most_ids));
  }
  TROUPE_TRY(on_stream(stream));
  TROUPE_TRY(Flight * flight, take_flight(step));

  auto* const up = static_cast<std::byte*>(step.upload);
  std::copy(step.cell_arrays.begin(), step.cell_arrays.end(), reinterpret_cast<DevicePtr*>(up + layout_.cell_arrays));
  auto* const rows = reinterpret_cast<kernels::StepRow*>(up + layout_.rows);
  const StepShape shape = to_kernels(step, rows, lora_runs_.data());
  const auto n = static_cast<std::uint32_t>(step.rows.size());
  // A power of two, so that few graphs serve all sizes.
  const std::uint32_t n_rows = by_graph(shape) ? std::min(std::bit_ceil(n), options_.max_rows) : n;
  for (std::uint32_t r = n; r < n_rows; ++r) rows[r] = {.slot = kernels::kNone};
  std::copy(step.tokens.begin(), step.tokens.end(), reinterpret_cast<std::uint32_t*>(up + layout_.ids));
  const UploadLayout::Lists lists = layout_.lists(step);
  auto* const changes = reinterpret_cast<kernels::TableChange*>(up + lists.changes);
  for (std::size_t i = 0; i < step.deltas.size(); ++i) changes[i] = {step.deltas[i].slot, step.deltas[i].index, step.deltas[i].block};

  auto* const samples = reinterpret_cast<kernels::SampleRow*>(up + lists.samples);
  for (std::size_t i = 0; i < step.samples.size(); ++i) samples[i] = to_kernels(step.samples[i]);
  auto* const biases = reinterpret_cast<kernels::IdBias*>(up + lists.biases);
  for (std::size_t i = 0; i < step.biases.size(); ++i) biases[i] = {step.biases[i].id, step.biases[i].bias};

  if (auto copied = driver_.copy_h2d_async(address(params_), up, lists.end, stream); !copied) {
    *flight = {};  // nothing is on the stream
    return copied.error();
  }
  TROUPE_TRY(forward(step, shape, n_rows, n_tokens + (n_rows - n), stream));
  forwarded_ = Forwarded{step.ticket, n, shape.n_logits, shape.n_logprobs};
  return address(scratch_.logits);
}

Result<void> LlamaOnCuda::forward(const StepView& step, const StepShape& shape, std::uint32_t n_rows, std::uint32_t n_tokens,
                                  Stream stream) {
  kernels_->apply_changes(tables_, param<kernels::TableChange>(layout_.lists(step).changes),
                          static_cast<std::uint32_t>(step.deltas.size()));
  kernels::FeedArgs feed;
  feed.rows = param<kernels::StepRow>(layout_.rows);
  feed.n_rows = n_rows;
  feed.ids = param<std::uint32_t>(layout_.ids);
  feed.cell_arrays = param<const kernels::Cell*>(layout_.cell_arrays);
  feed.cells = at<kernels::Cell>(step.cells);
  feed.tag = step.tag;
  feed.vocab = config_.vocab;
  feed.block_size = options_.block_size;
  feed.n_blocks = options_.kv_blocks;
  feed.window = config_.sliding_window;
  feed.tables = tables_;
  feed.tokens = scratch_.tokens;
  feed.readback = readback_;
  feed.history = history_;
  feed.history_stride = options_.context_limit;
  kernels_->feed_resolve(feed);
  // Behind a failed one, the layers would write the KV of whatever tokens and tables an earlier step left (R7).
  TROUPE_TRY(driver_.launched(stream));
  if (by_graph(shape)) {
    return replay(n_rows, step.ticket, feed, stream);
  }
  layers(feed, n_tokens, shape.n_outputs, shape.n_lora_runs);
  return layers_launched(stream);
}

void LlamaOnCuda::layers(const kernels::FeedArgs& feed, std::uint32_t n_tokens, std::uint32_t n_outputs, std::uint32_t n_lora_runs) {
  llama_layers(*kernels_, config_, weights_, inv_freq_, scratch_, {kv_, {}}, feed, {{lora_runs_.data(), n_lora_runs}, &adapters_}, n_tokens,
               n_outputs);
}

// The layers of a decode step of `size` rows: by its graph, which is captured if it is not there; without one, launched.
Result<void> LlamaOnCuda::replay(std::uint32_t size, Ticket ticket, const kernels::FeedArgs& feed, Stream stream) {
  Graph graph = graphs_.pin(size, ticket);
  if (graph == 0) {
    TROUPE_TRY(const auto captured, capture(size, feed, stream));
    if (captured) {
      graphs_.add(size, *captured);
      graph = graphs_.pin(size, ticket);
    }
  }
  if (graph == 0) {
    layers(feed, size, size);
    return layers_launched(stream);
  }
  ++figures_.replayed;
  return driver_.graph_launch(graph, stream);
}

// none: it is not to be had now. An error: the device is lost.
Result<std::optional<Graph>> LlamaOnCuda::capture(std::uint32_t size, const kernels::FeedArgs& feed, Stream stream) {
  if (figures_.failed >= kMostFailedCaptures) return std::optional<Graph>();
  const std::optional<Graph> evicted = graphs_.make_room();
  if (!evicted) return std::optional<Graph>();
  if (*evicted != 0) {
    ++figures_.evicted;
    drop(*evicted);
  }
  const auto refused = [this](const Error& error) -> Result<std::optional<Graph>> {
    ++figures_.failed;
    if (error.code == ErrorCode::device_lost) return error;
    return std::optional<Graph>();
  };
  if (auto begun = driver_.graph_capture_begin(stream); !begun) return refused(begun.error());
  layers(feed, size, size);
  const auto launched = layers_launched(stream);
  auto graph = driver_.graph_capture_end(stream);
  if (!graph) return refused(graph.error());
  if (!launched) {
    drop(graph.value());
    return refused(launched.error());
  }
  ++figures_.captured;
  return std::optional<Graph>(graph.value());
}

void LlamaOnCuda::drop(Graph graph) {
  if (!driver_.destroy_graph(graph)) left_over_.push_back(graph);
}

Result<void> LlamaOnCuda::argmax_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) {
  if (!forwarded_ || forwarded_->ticket != step.ticket || logits != address(scratch_.logits)) {
    return bad_plan("argmax_batch_to_feed needs the step, and the handle, of the decode_batch_fed before it");
  }
  const Forwarded f = *std::exchange(forwarded_, std::nullopt);
  kernels_->argmax(param<kernels::StepRow>(layout_.rows), f.n_rows, scratch_.logits, config_.vocab, step.tag, at<kernels::Cell>(step.cells),
                   readback_, logits_out_);
  if (!step.samples.empty()) sample(step);
  TROUPE_TRY(driver_.launched(stream));
  TROUPE_TRY(driver_.copy_d2h_async(dst.rows, address(readback_), f.n_rows * sizeof(Readback), stream));
  TROUPE_TRY(driver_.copy_d2h_async(dst.logits, address(logits_out_), std::size_t{f.n_logits} * config_.vocab * sizeof(float), stream));
  TROUPE_TRY(driver_.copy_d2h_async(dst.logprobs, address(logprobs_), f.n_logprobs * sizeof(ReadLogprobs), stream));
  return driver_.record_event(event, stream);
}

void LlamaOnCuda::sample(const StepView& step) {
  const UploadLayout::Lists lists = layout_.lists(step);
  kernels::SampleArgs args;
  args.rows = param<kernels::StepRow>(layout_.rows);
  args.samples = param<kernels::SampleRow>(lists.samples);
  args.n = static_cast<std::uint32_t>(step.samples.size());
  args.logits = scratch_.logits;
  args.vocab = config_.vocab;
  args.tag = step.tag;
  args.biases = param<kernels::IdBias>(lists.biases);
  args.ids = param<std::uint32_t>(layout_.ids);
  args.history = history_;
  args.history_stride = options_.context_limit;
  args.cells = at<kernels::Cell>(step.cells);
  args.readback = readback_;
  args.logprobs = logprobs_;
  kernels_->sample(args);
}

Result<void> LlamaOnCuda::check_copy(std::span<const BlockId> blocks) const {
  if (blocks.size() > kernels::kBlocksACopy) {
    return bad_plan(fmt::format("a copy of {} blocks; at most {} go at once", blocks.size(), kernels::kBlocksACopy));
  }
  for (const BlockId block : blocks) {
    if (block >= options_.kv_blocks) return bad_plan(fmt::format("a copy of block {} of {}", block, options_.kv_blocks));
  }
  return success();
}

Result<void> LlamaOnCuda::copy_blocks_out(std::span<const BlockId> blocks, void* to, Stream stream) {
  TROUPE_TRY(check_copy(blocks));
  TROUPE_TRY(void* const native, driver_.native_stream(stream));
  kernels::launch_read_blocks(kv_, blocks, to, native);
  return driver_.launched(stream);
}

Result<void> LlamaOnCuda::copy_blocks_in(std::span<const BlockId> blocks, const void* from, Stream stream) {
  TROUPE_TRY(check_copy(blocks));
  TROUPE_TRY(void* const native, driver_.native_stream(stream));
  kernels::launch_write_blocks(kv_, blocks, from, native);
  return driver_.launched(stream);
}

}  // namespace troupe::device
