#include "device/models/llama_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "device/models/cuda_steps.h"
#include "device/models/device_memory.h"
#include "device/models/device_weights.h"
#include "device/models/llama_forward.h"
#include "device/models/lora.h"
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
      : parts_(options, std::move(config), driver), memory_(driver), steps_(parts_, options.max_graphs) {}

  Result<void> init(const LlamaWeights& weights);

  const ModelInfo& info() const override { return info_; }
  std::size_t cells_bytes() const override { return parts_.options.max_rows * sizeof(kernels::Cell); }
  std::size_t upload_bytes() const override { return parts_.layout.bytes; }
  bool supports_device_token_feed() const override { return true; }
  ModelDeviceFeed* prefill_feed() override { return aside_.get(); }
  Result<DevicePtr> decode_batch_fed(const StepView& step, Stream stream) override { return steps_.decode(step, stream); }
  Result<void> argmax_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) override {
    return steps_.argmax(logits, step, dst, event, stream);
  }
  Result<void> sample_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) override {
    return steps_.argmax(logits, step, dst, event, stream);
  }
  void fed_step_settled(Ticket ticket) override { steps_.settled(ticket); }
  Result<void> load_adapter(std::uint32_t slot, const std::string& path) override;
  Result<AdapterImage> read_adapter(std::uint32_t slot) override;
  Result<void> load_adapter_image(std::uint32_t slot, const AdapterImage& image) override;
  Result<void> show_adapter(std::uint32_t slot) override { return parts_.adapters.show(slot); }
  Result<void> hide_adapter(std::uint32_t slot) override { return parts_.adapters.hide(slot); }
  std::size_t kv_block_bytes() const override { return kernels::cuda_kv_bytes(parts_.caches.kv) / parts_.caches.kv.n_blocks; }
  Result<void> copy_blocks_out(std::span<const BlockId> blocks, void* to, Stream stream) override;
  Result<void> copy_blocks_in(std::span<const BlockId> blocks, const void* from, Stream stream) override;
  std::size_t ssm_state_bytes() const override { return parts_.caches.states.version_floats() * sizeof(float); }
  Result<void> copy_state_out(std::uint32_t version, std::size_t begin, std::size_t bytes, void* to, Stream stream) override;
  Result<void> copy_state_in(std::uint32_t version, std::size_t begin, std::size_t bytes, const void* from, Stream stream) override;
  GraphFigures graph_figures() const override { return steps_.graph_figures(); }

 private:
  // The feed of the prefill stream. It replays no graphs: no two of its steps are of one size.
  class Aside final : public ModelDeviceFeed {
   public:
    explicit Aside(LlamaOnCuda& model) : steps(model.parts_, 0), model_(model) {}
    const ModelInfo& info() const override { return model_.info_; }
    std::size_t cells_bytes() const override { return model_.cells_bytes(); }
    std::size_t upload_bytes() const override { return model_.upload_bytes(); }
    bool supports_device_token_feed() const override { return true; }
    Result<DevicePtr> decode_batch_fed(const StepView& step, Stream stream) override { return steps.decode(step, stream); }
    Result<void> argmax_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) override {
      return steps.argmax(logits, step, dst, event, stream);
    }
    Result<void> sample_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) override {
      return steps.argmax(logits, step, dst, event, stream);
    }
    void fed_step_settled(Ticket ticket) override { steps.settled(ticket); }

    CudaSteps steps;

   private:
    const LlamaOnCuda& model_;
  };

  Result<void> open_cublaslt(CudaSteps& steps);
  Result<void> check_copy(std::span<const BlockId> blocks) const;

  CudaParts parts_;
  ModelInfo info_;
  DeviceMemory memory_;
  CudaSteps steps_;
  std::unique_ptr<Aside> aside_;  // null: prefill has no stream of its own
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
  LlamaOptions& o = parts_.options;
  const ModelConfig& c = parts_.config;
  TROUPE_TRY(complete(o, c));
  TROUPE_TRY(const auto target, parts_.driver.kernel_target());
  // How one mma rounds inside is the machine's own.
  info_ = llama_info(c, weights, o, "cuda/" + target + "/bf16/kv-bf16");
  info_.streams = o.prefill_stream ? 3 : 2;

  TROUPE_TRY(parts_.weights, on_device(weights, c, memory_, parts_.driver));
  TROUPE_TRY(double* const inv_freq, memory_.get<double>(c.inv_freq.size()));
  const UploadPiece frequencies{address(inv_freq), c.inv_freq.data(), c.inv_freq.size() * sizeof(double)};
  TROUPE_TRY(upload(parts_.driver, {&frequencies, 1}));
  parts_.inv_freq = inv_freq;

  parts_.caches.kv = {nullptr, c.layers - c.recurrent_layers(), o.kv_blocks, o.block_size, c.kv_heads, c.head_dim};
  TROUPE_TRY(parts_.caches.kv.data, memory_.get<std::byte>(kernels::cuda_kv_bytes(parts_.caches.kv)));
  TROUPE_TRY(parts_.caches.states, llama_states(memory_, c, o));
  TROUPE_TRY(parts_.tables, llama_tables(memory_, o));
  parts_.layout = UploadLayout(o, parts_.tables);
  TROUPE_TRY(parts_.history, memory_.get<std::uint32_t>(std::size_t{o.n_slots} * o.context_limit));
  TROUPE_TRY(parts_.adapters.init(memory_, c, o.max_loras, o.max_lora_rank));
  TROUPE_TRY(steps_.init(memory_));
  if (o.prefill_stream) {
    aside_ = std::make_unique<Aside>(*this);
    TROUPE_TRY(aside_->steps.init(memory_));
  }
  if (o.gemm != Gemm::cublaslt) return success();
  TROUPE_TRY(open_cublaslt(steps_));
  if (aside_ != nullptr) {
    TROUPE_TRY(open_cublaslt(aside_->steps));
  }
  info_.arithmetic_id += "/cublaslt";
  return success();
}

Result<void> LlamaOnCuda::open_cublaslt(CudaSteps& steps) {
  const auto bf16 = [](const kernels::Weight& w) { return w.format == kernels::Format::bf16; };
  bool any = bf16(parts_.weights.output);
  for (const LlamaLayer& l : parts_.weights.layers) {
    const DeltaLayer& d = l.delta;
    for (const auto* w : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down, &d.qkv, &d.z, &d.a, &d.b, &d.out})
      any = any || (w->data != nullptr && bf16(*w));
  }
  if (!any) {
    return Error{ErrorCode::unsupported, "cuBLASLt would make the products of BF16 weights, and this model has none (" +
                                             info_.arithmetic_id +
                                             "): leave --gemm cublaslt out; quantized weights stay with our own kernels"};
  }
  auto opened = kernels::open_cublaslt(parts_.options.cublaslt);
  if (opened.library == nullptr) {
    return Error{ErrorCode::unsupported, "--gemm cublaslt: " + opened.why +
                                             "; install cuBLAS of CUDA 12 or 13, name its libcublasLt in TROUPE_CUBLASLT, or leave the "
                                             "option out: our own kernels need no library"};
  }
  return steps.use(std::move(opened.library), memory_);
}

// By a stream of its own; what it writes no step in flight reads.
Result<void> LlamaOnCuda::load_adapter(std::uint32_t slot, const std::string& path) {
  TROUPE_TRY(const auto adapter, LoraAdapter::open(path, parts_.config));
  TROUPE_TRY(parts_.driver.bind_thread());
  return parts_.adapters.upload(slot, adapter, [this](std::span<const UploadPiece> pieces) { return upload(parts_.driver, pieces); });
}

Result<void> LlamaOnCuda::load_adapter_image(std::uint32_t slot, const AdapterImage& image) {
  TROUPE_TRY(const auto adapter, LoraAdapter::from_image(image.bytes, "an adapter of another replica", parts_.config));
  TROUPE_TRY(parts_.driver.bind_thread());
  return parts_.adapters.upload(slot, adapter, [this](std::span<const UploadPiece> pieces) { return upload(parts_.driver, pieces); });
}

Result<AdapterImage> LlamaOnCuda::read_adapter(std::uint32_t slot) {
  TROUPE_TRY(parts_.driver.bind_thread());
  return parts_.adapters.read(slot, [this](std::span<const DownloadPiece> pieces) { return download(parts_.driver, pieces); });
}

Result<void> LlamaOnCuda::check_copy(std::span<const BlockId> blocks) const {
  if (blocks.size() > kernels::kBlocksACopy) {
    return bad_plan(fmt::format("a copy of {} blocks; at most {} go at once", blocks.size(), kernels::kBlocksACopy));
  }
  for (const BlockId block : blocks) {
    if (block >= parts_.options.kv_blocks) return bad_plan(fmt::format("a copy of block {} of {}", block, parts_.options.kv_blocks));
  }
  return success();
}

Result<void> LlamaOnCuda::copy_blocks_out(std::span<const BlockId> blocks, void* to, Stream stream) {
  TROUPE_TRY(check_copy(blocks));
  TROUPE_TRY(void* const native, parts_.driver.native_stream(stream));
  kernels::launch_read_blocks(parts_.caches.kv, blocks, to, native);
  return parts_.driver.launched(stream);
}

Result<void> LlamaOnCuda::copy_blocks_in(std::span<const BlockId> blocks, const void* from, Stream stream) {
  TROUPE_TRY(check_copy(blocks));
  TROUPE_TRY(void* const native, parts_.driver.native_stream(stream));
  kernels::launch_write_blocks(parts_.caches.kv, blocks, from, native);
  return parts_.driver.launched(stream);
}

Result<void> LlamaOnCuda::copy_state_out(std::uint32_t version, std::size_t begin, std::size_t bytes, void* to, Stream stream) {
  TROUPE_TRY(std::byte* const state, state_at(parts_.caches.states, version, begin, bytes));
  return parts_.driver.copy_d2h_async(to, address(state), bytes, stream);
}

Result<void> LlamaOnCuda::copy_state_in(std::uint32_t version, std::size_t begin, std::size_t bytes, const void* from, Stream stream) {
  TROUPE_TRY(std::byte* const state, state_at(parts_.caches.states, version, begin, bytes));
  return parts_.driver.copy_h2d_async(address(state), from, bytes, stream);
}

}  // namespace troupe::device
