#include "device/models/llama_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/models/cuda_workspace.h"
#include "device/models/device_memory.h"
#include "device/models/device_weights.h"
#include "device/models/llama_forward.h"
#include "device/models/lora.h"
#include "device/models/step_graphs.h"
#include "device/models/step_upload.h"
#include "device/models/upload.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/families.h"
#include "kernels/kernels.h"

namespace troupe::device {

namespace {

Error bad_plan(std::string what) { return {ErrorCode::bad_plan, std::move(what)}; }

}  // namespace

class LlamaOnCuda final : public LlamaCudaModel {
 public:
  LlamaOnCuda(const LlamaOptions& options, ModelConfig config, Driver& driver)
      : options_(options),
        config_(std::move(config)),
        driver_(driver),
        memory_(driver),
        graphs_(driver, options.max_graphs, std::size_t{options.max_depth} + 1) {}

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
  Result<void> show_adapter(std::uint32_t slot) override { return adapters_.show(slot); }
  Result<void> hide_adapter(std::uint32_t slot) override { return adapters_.hide(slot); }
  std::size_t kv_block_bytes() const override { return kernels::cuda_kv_bytes(caches_.kv) / caches_.kv.n_blocks; }
  Result<void> copy_blocks_out(std::span<const BlockId> blocks, void* to, Stream stream) override;
  Result<void> copy_blocks_in(std::span<const BlockId> blocks, const void* from, Stream stream) override;
  GraphFigures graph_figures() const override { return graphs_.figures(); }

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
  Result<Flight*> take_flight(const StepView& step);
  bool by_graph(const StepShape& shape) const { return options_.max_graphs != 0 && shape.decode && shape.n_lora_runs == 0; }
  Result<void> forward(const StepView& step, const StepShape& shape, std::uint32_t n_rows, std::uint32_t n_tokens, Stream stream);
  void sample(const StepView& step);
  Result<void> layers(const kernels::FeedArgs& feed, std::uint32_t n_tokens, std::uint32_t n_outputs, std::uint32_t n_lora_runs,
                      Stream stream);
  Result<void> check_copy(std::span<const BlockId> blocks) const;

  LlamaOptions options_;
  ModelConfig config_;
  Driver& driver_;
  ModelInfo info_;
  DeviceMemory memory_;
  LlamaWeights weights_;  // on the device
  const double* inv_freq_ = nullptr;
  std::unique_ptr<kernels::CublasLt> cublaslt_;  // null: our own kernels make every product
  std::unique_ptr<kernels::Kernels> kernels_;    // on native_
  void* native_ = nullptr;
  LlamaCaches caches_;
  kernels::BlockTables tables_;
  CudaWorkspace work_;
  LlamaAdapters adapters_;
  std::vector<kernels::LoraRun> lora_runs_;  // of the step that is being enqueued
  UploadLayout layout_;
  std::uint32_t* history_ = nullptr;  // kernels::FeedArgs::history
  std::vector<Flight> flights_;
  std::optional<Forwarded> forwarded_;
  StepGraphs graphs_;
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
  if (config.delta.k_dim > kernels::kMostKeyElements) {
    return Error{ErrorCode::unsupported, fmt::format("recurrent layers with keys of {} elements: {} takes up to {}; use host:0",
                                                     config.delta.k_dim, driver.name(), kernels::kMostKeyElements)};
  }
  TROUPE_TRY(const auto weights, load_llama_weights(*source, config));
  auto model = std::make_unique<LlamaOnCuda>(options, std::move(config), driver);
  TROUPE_TRY(model->init(weights));
  return std::unique_ptr<LlamaCudaModel>(std::move(model));
}

Result<void> LlamaOnCuda::init(const LlamaWeights& weights) {
  LlamaOptions& o = options_;
  const ModelConfig& c = config_;
  TROUPE_TRY(complete(o, c));
  TROUPE_TRY(const auto target, driver_.kernel_target());
  // How one mma rounds inside is the machine's own.
  info_ = llama_info(c, weights, o, "cuda/" + target + "/bf16/kv-bf16");
  info_.streams = 2;

  TROUPE_TRY(weights_, on_device(weights, c, memory_, driver_));
  TROUPE_TRY(double* const inv_freq, memory_.get<double>(c.inv_freq.size()));
  const UploadPiece frequencies{address(inv_freq), c.inv_freq.data(), c.inv_freq.size() * sizeof(double)};
  TROUPE_TRY(upload(driver_, {&frequencies, 1}));
  inv_freq_ = inv_freq;

  caches_.kv = {nullptr, c.layers - c.recurrent_layers(), o.kv_blocks, o.block_size, c.kv_heads, c.head_dim};
  TROUPE_TRY(caches_.kv.data, memory_.get<std::byte>(kernels::cuda_kv_bytes(caches_.kv)));
  TROUPE_TRY(caches_.states, llama_states(memory_, c, o));
  TROUPE_TRY(tables_, llama_tables(memory_, o));
  layout_ = UploadLayout(o, tables_);
  TROUPE_TRY(work_, cuda_workspace(memory_, c, o, layout_.bytes));
  TROUPE_TRY(history_, memory_.get<std::uint32_t>(std::size_t{o.n_slots} * o.context_limit));
  TROUPE_TRY(adapters_.init(memory_, c, o.max_loras, o.max_lora_rank));
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
  for (const LlamaLayer& l : weights_.layers) {
    const DeltaLayer& d = l.delta;
    for (const auto* w : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down, &d.qkv, &d.z, &d.a, &d.b, &d.out})
      any = any || (w->data != nullptr && bf16(*w));
  }
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
  const std::size_t widest = std::max({config_.width, config_.q_width(), config_.ffn, config_.delta.value_width()});
  TROUPE_TRY(work_.kernels.rounded, memory_.get<std::uint16_t>(most_rows * widest));
  TROUPE_TRY(std::byte* const workspace, memory_.get<std::byte>(kernels::kCublasLtWorkspace));
  cublaslt_->use_workspace(workspace);
  work_.kernels.cublaslt = cublaslt_.get();
  info_.arithmetic_id += "/cublaslt";
  return success();
}

// By a stream of its own; what it writes no step in flight reads.
Result<void> LlamaOnCuda::load_adapter(std::uint32_t slot, const std::string& path) {
  TROUPE_TRY(const auto adapter, LoraAdapter::open(path, config_));
  TROUPE_TRY(driver_.bind_thread());
  return adapters_.upload(slot, adapter, [this](std::span<const UploadPiece> pieces) { return upload(driver_, pieces); });
}

// The kernels are launched on the vendor's stream.
Result<void> LlamaOnCuda::on_stream(Stream stream) {
  TROUPE_TRY(void* const native, driver_.native_stream(stream));
  if (kernels_ != nullptr && native == native_) return success();
  graphs_.clear();  // of the stream that was there before, which is gone
  native_ = work_.kernels.stream = native;
  kernels_ = kernels::make_cuda_kernels(work_.kernels);
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
  TROUPE_TRY(check_upload(layout_, step));
  TROUPE_TRY(on_stream(stream));
  TROUPE_TRY(Flight * flight, take_flight(step));

  const StepShape shape = pack_step(layout_, step, step.upload, lora_runs_.data());
  const auto n = static_cast<std::uint32_t>(step.rows.size());
  // A power of two, so that few graphs serve all sizes.
  const std::uint32_t n_rows = by_graph(shape) ? std::min(std::bit_ceil(n), options_.max_rows) : n;
  fill_rows(layout_, step.upload, n, n_rows);
  if (auto copied = driver_.copy_h2d_async(address(work_.params), step.upload, layout_.lists(step).end, stream); !copied) {
    *flight = {};  // nothing is on the stream
    return copied.error();
  }
  TROUPE_TRY(forward(step, shape, n_rows, n_tokens + (n_rows - n), stream));
  forwarded_ = Forwarded{step.ticket, n, shape.n_logits, shape.n_logprobs};
  return address(work_.scratch.logits);
}

Result<void> LlamaOnCuda::forward(const StepView& step, const StepShape& shape, std::uint32_t n_rows, std::uint32_t n_tokens,
                                  Stream stream) {
  kernels_->apply_changes(tables_, work_.param<kernels::TableChange>(layout_.lists(step).changes),
                          static_cast<std::uint32_t>(step.deltas.size()));
  kernels::FeedArgs feed;
  feed.rows = work_.param<kernels::StepRow>(layout_.rows);
  feed.n_rows = n_rows;
  feed.ids = work_.param<std::uint32_t>(layout_.ids);
  feed.cell_arrays = work_.param<const kernels::Cell*>(layout_.cell_arrays);
  feed.cells = at<kernels::Cell>(step.cells);
  feed.tag = step.tag;
  feed.vocab = config_.vocab;
  feed.block_size = options_.block_size;
  feed.n_blocks = options_.kv_blocks;
  feed.window = config_.sliding_window;
  feed.tables = tables_;
  feed.tokens = work_.scratch.tokens;
  feed.readback = work_.readback;
  feed.history = history_;
  feed.history_stride = options_.context_limit;
  kernels_->feed_resolve(feed);
  // Behind a failed one, the layers would write the KV of whatever tokens and tables an earlier step left (R7).
  TROUPE_TRY(driver_.launched(stream));
  if (!by_graph(shape)) return layers(feed, n_tokens, shape.n_outputs, shape.n_lora_runs, stream);
  return graphs_.run(n_rows, step.ticket, stream, [&] { return layers(feed, n_rows, n_rows, 0, stream); });
}

// An error: not all of it was launched.
Result<void> LlamaOnCuda::layers(const kernels::FeedArgs& feed, std::uint32_t n_tokens, std::uint32_t n_outputs, std::uint32_t n_lora_runs,
                                 Stream stream) {
  llama_layers(*kernels_, config_, weights_, inv_freq_, work_.scratch, caches_, feed, {{lora_runs_.data(), n_lora_runs}, &adapters_},
               n_tokens, n_outputs);
  TROUPE_TRY(driver_.launched(stream));
  if (cublaslt_ == nullptr) return success();
  if (std::string failure = cublaslt_->take_failure(); !failure.empty()) return Error{ErrorCode::device_failed, std::move(failure)};
  return success();
}

Result<void> LlamaOnCuda::argmax_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) {
  if (!forwarded_ || forwarded_->ticket != step.ticket || logits != address(work_.scratch.logits)) {
    return bad_plan("argmax_batch_to_feed needs the step, and the handle, of the decode_batch_fed before it");
  }
  const Forwarded f = *std::exchange(forwarded_, std::nullopt);
  kernels_->argmax(work_.param<kernels::StepRow>(layout_.rows), f.n_rows, work_.scratch.logits, config_.vocab, step.tag,
                   at<kernels::Cell>(step.cells), work_.readback, work_.logits_out);
  if (!step.samples.empty()) sample(step);
  TROUPE_TRY(driver_.launched(stream));
  TROUPE_TRY(driver_.copy_d2h_async(dst.rows, address(work_.readback), f.n_rows * sizeof(Readback), stream));
  TROUPE_TRY(
      driver_.copy_d2h_async(dst.logits, address(work_.logits_out), std::size_t{f.n_logits} * config_.vocab * sizeof(float), stream));
  TROUPE_TRY(driver_.copy_d2h_async(dst.logprobs, address(work_.logprobs), f.n_logprobs * sizeof(ReadLogprobs), stream));
  return driver_.record_event(event, stream);
}

void LlamaOnCuda::sample(const StepView& step) {
  const UploadLayout::Lists lists = layout_.lists(step);
  kernels::SampleArgs args;
  args.rows = work_.param<kernels::StepRow>(layout_.rows);
  args.samples = work_.param<kernels::SampleRow>(lists.samples);
  args.n = static_cast<std::uint32_t>(step.samples.size());
  args.logits = work_.scratch.logits;
  args.vocab = config_.vocab;
  args.tag = step.tag;
  args.biases = work_.param<kernels::IdBias>(lists.biases);
  args.ids = work_.param<std::uint32_t>(layout_.ids);
  args.history = history_;
  args.history_stride = options_.context_limit;
  args.cells = at<kernels::Cell>(step.cells);
  args.readback = work_.readback;
  args.logprobs = work_.logprobs;
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
  kernels::launch_read_blocks(caches_.kv, blocks, to, native);
  return driver_.launched(stream);
}

Result<void> LlamaOnCuda::copy_blocks_in(std::span<const BlockId> blocks, const void* from, Stream stream) {
  TROUPE_TRY(check_copy(blocks));
  TROUPE_TRY(void* const native, driver_.native_stream(stream));
  kernels::launch_write_blocks(caches_.kv, blocks, from, native);
  return driver_.launched(stream);
}

}  // namespace troupe::device
