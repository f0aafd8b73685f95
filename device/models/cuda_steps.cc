#include "device/models/cuda_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

namespace troupe::device {

namespace {

Error bad_plan(std::string what) { return {ErrorCode::bad_plan, std::move(what)}; }

}  // namespace

CudaSteps::CudaSteps(const CudaParts& parts, std::size_t max_graphs)
    : m_(parts), max_graphs_(max_graphs), graphs_(parts.driver, max_graphs, std::size_t{parts.options.max_depth} + 1) {}

Result<void> CudaSteps::init(DeviceMemory& memory) {
  const LlamaOptions& o = m_.options;
  TROUPE_TRY(work_, cuda_workspace(memory, m_.config, o, m_.layout.bytes));
  lora_runs_.resize(o.max_rows);
  flights_.resize(std::size_t{o.max_depth} + 1);
  return success();
}

Result<void> CudaSteps::use(std::unique_ptr<kernels::CublasLt> library, DeviceMemory& memory) {
  cublaslt_ = std::move(library);
  const ModelConfig& c = m_.config;
  const std::size_t widest = std::max({c.width, c.q_width(), c.ffn, c.delta.value_width()});
  const std::size_t most_rows = std::max(m_.options.max_step_tokens, m_.options.max_rows);
  TROUPE_TRY(work_.kernels.rounded, memory.get<std::uint16_t>(most_rows * widest));
  TROUPE_TRY(std::byte* const workspace, memory.get<std::byte>(kernels::kCublasLtWorkspace));
  cublaslt_->use_workspace(workspace);
  work_.kernels.cublaslt = cublaslt_.get();
  return success();
}

// The kernels are launched on the vendor's stream.
Result<void> CudaSteps::on_stream(Stream stream) {
  TROUPE_TRY(void* const native, m_.driver.native_stream(stream));
  if (kernels_ != nullptr && native == native_) return success();
  graphs_.clear();  // of the stream that was there before, which is gone
  native_ = work_.kernels.stream = native;
  kernels_ = kernels::make_cuda_kernels(work_.kernels);
  return success();
}

Result<CudaSteps::Flight*> CudaSteps::take_flight(const StepView& step) {
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

void CudaSteps::settled(Ticket ticket) {
  graphs_.settled(ticket);
  for (Flight& f : flights_) {
    if (f.upload != nullptr && f.ticket == ticket) f = {};
  }
}

Result<DevicePtr> CudaSteps::decode(const StepView& step, Stream stream) {
  forwarded_.reset();
  TROUPE_TRY(const auto n_tokens, check_step(step, m_.options, m_.config, m_.tables, m_.adapters));
  TROUPE_TRY(check_upload(m_.layout, step));
  TROUPE_TRY(on_stream(stream));
  TROUPE_TRY(Flight * flight, take_flight(step));

  const StepShape shape = pack_step(m_.layout, step, step.upload, lora_runs_.data());
  const auto n = static_cast<std::uint32_t>(step.rows.size());
  // A power of two, so that few graphs serve all sizes.
  const std::uint32_t n_rows = by_graph(shape) ? std::min(std::bit_ceil(n), m_.options.max_rows) : n;
  fill_rows(m_.layout, step.upload, n, n_rows);
  if (auto copied = m_.driver.copy_h2d_async(address(work_.params), step.upload, m_.layout.lists(step).end, stream); !copied) {
    *flight = {};  // nothing is on the stream
    return copied.error();
  }
  TROUPE_TRY(forward(step, shape, n_rows, n_tokens + (n_rows - n), stream));
  forwarded_ = Forwarded{step.ticket, n, shape.n_logits, shape.n_logprobs};
  return address(work_.scratch.logits);
}

Result<void> CudaSteps::forward(const StepView& step, const StepShape& shape, std::uint32_t n_rows, std::uint32_t n_tokens, Stream stream) {
  kernels_->apply_changes(m_.tables, work_.param<kernels::TableChange>(m_.layout.lists(step).changes),
                          static_cast<std::uint32_t>(step.deltas.size()));
  kernels::FeedArgs feed;
  feed.rows = work_.param<kernels::StepRow>(m_.layout.rows);
  feed.n_rows = n_rows;
  feed.ids = work_.param<std::uint32_t>(m_.layout.ids);
  feed.cell_arrays = work_.param<const kernels::Cell*>(m_.layout.cell_arrays);
  feed.cells = at<kernels::Cell>(step.cells);
  feed.tag = step.tag;
  feed.vocab = m_.config.vocab;
  feed.block_size = m_.options.block_size;
  feed.n_blocks = m_.options.kv_blocks;
  feed.window = m_.config.sliding_window;
  feed.tables = m_.tables;
  feed.tokens = work_.scratch.tokens;
  feed.readback = work_.readback;
  feed.history = m_.history;
  feed.history_stride = m_.options.context_limit;
  kernels_->feed_resolve(feed);
  // Behind a failed one, the layers would write the KV of whatever tokens and tables an earlier step left (R7).
  TROUPE_TRY(m_.driver.launched(stream));
  if (!by_graph(shape)) return layers(feed, n_tokens, shape.n_outputs, shape.n_lora_runs, stream);
  return graphs_.run(n_rows, step.ticket, stream, [&] { return layers(feed, n_rows, n_rows, 0, stream); });
}

// An error: not all of it was launched.
Result<void> CudaSteps::layers(const kernels::FeedArgs& feed, std::uint32_t n_tokens, std::uint32_t n_outputs, std::uint32_t n_lora_runs,
                               Stream stream) {
  llama_layers(*kernels_, m_.config, m_.weights, m_.inv_freq, work_.scratch, m_.caches, feed,
               {{lora_runs_.data(), n_lora_runs}, &m_.adapters}, n_tokens, n_outputs);
  TROUPE_TRY(m_.driver.launched(stream));
  if (cublaslt_ == nullptr) return success();
  if (std::string failure = cublaslt_->take_failure(); !failure.empty()) return Error{ErrorCode::device_failed, std::move(failure)};
  return success();
}

Result<void> CudaSteps::argmax(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) {
  if (!forwarded_ || forwarded_->ticket != step.ticket || logits != address(work_.scratch.logits)) {
    return bad_plan("argmax_batch_to_feed needs the step, and the handle, of the decode_batch_fed before it");
  }
  const Forwarded f = *std::exchange(forwarded_, std::nullopt);
  kernels_->argmax(work_.param<kernels::StepRow>(m_.layout.rows), f.n_rows, work_.scratch.logits, m_.config.vocab, step.tag,
                   at<kernels::Cell>(step.cells), work_.readback, work_.logits_out);
  if (!step.samples.empty()) sample(step);
  TROUPE_TRY(m_.driver.launched(stream));
  TROUPE_TRY(m_.driver.copy_d2h_async(dst.rows, address(work_.readback), f.n_rows * sizeof(Readback), stream));
  TROUPE_TRY(
      m_.driver.copy_d2h_async(dst.logits, address(work_.logits_out), std::size_t{f.n_logits} * m_.config.vocab * sizeof(float), stream));
  TROUPE_TRY(m_.driver.copy_d2h_async(dst.logprobs, address(work_.logprobs), f.n_logprobs * sizeof(ReadLogprobs), stream));
  return m_.driver.record_event(event, stream);
}

void CudaSteps::sample(const StepView& step) {
  const UploadLayout::Lists lists = m_.layout.lists(step);
  kernels::SampleArgs args;
  args.rows = work_.param<kernels::StepRow>(m_.layout.rows);
  args.samples = work_.param<kernels::SampleRow>(lists.samples);
  args.n = static_cast<std::uint32_t>(step.samples.size());
  args.logits = work_.scratch.logits;
  args.vocab = m_.config.vocab;
  args.tag = step.tag;
  args.biases = work_.param<kernels::IdBias>(lists.biases);
  args.ids = work_.param<std::uint32_t>(m_.layout.ids);
  args.history = m_.history;
  args.history_stride = m_.options.context_limit;
  args.cells = at<kernels::Cell>(step.cells);
  args.readback = work_.readback;
  args.logprobs = work_.logprobs;
  kernels_->sample(args);
}

}  // namespace troupe::device
