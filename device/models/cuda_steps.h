// The steps of a CUDA model on one stream. A step's parameters (rows, ids, table changes, cell arrays) go up by one copy from its upload
// memory; then its kernels, the copies of what the host reads and the event follow on the same stream, so stream order is all the order
// there is. What two streams with steps share is in CudaParts: of that, a step changes the KV, the block tables, the recurrent states
// and the kept ids of its own sequences only, and no two steps in flight on two streams have one in common.
//
// A decode step (every row one token, every row wants one, no adapters) is filled up to a power of two of rows and replayed as a
// graph, captured behind the first step of its size: all that changes between two such steps is in device memory or in the launches
// around the graph. Rows that fill up have no block table, so they write no KV and read none. Where there is no graph, the same
// kernels are launched one by one.
//
// R4: an upload area or a graph is used again only when the step that uses it has settled; until then a step that brings the same area
// is refused.
//
// Thread: the actor's of the stream. Nothing is allocated after init() but at the first step of a stream and at captures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/driver.h"
#include "device/model.h"
#include "device/models/cuda_workspace.h"
#include "device/models/device_memory.h"
#include "device/models/llama_adapters.h"
#include "device/models/llama_forward.h"
#include "device/models/llama_step.h"
#include "device/models/model_config.h"
#include "device/models/step_graphs.h"
#include "device/models/step_upload.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/kernels.h"
#include "messages/error.h"

namespace troupe::device {

// What the steps of all streams share.
struct CudaParts {
  CudaParts(const LlamaOptions& o, ModelConfig c, Driver& d) : options(o), config(std::move(c)), driver(d) {}

  LlamaOptions options;
  ModelConfig config;
  Driver& driver;
  LlamaWeights weights;  // on the device
  const double* inv_freq = nullptr;
  LlamaCaches caches;
  kernels::BlockTables tables;
  LlamaAdapters adapters;
  UploadLayout layout;
  std::uint32_t* history = nullptr;  // kernels::FeedArgs::history
};

class CudaSteps {
 public:
  // `parts` outlives it, and is whole before init(). Keeps `max_graphs` graphs.
  CudaSteps(const CudaParts& parts, std::size_t max_graphs);

  Result<void> init(DeviceMemory& memory);
  // Makes products of BF16 weights by that library from now on.
  Result<void> use(std::unique_ptr<kernels::CublasLt> library, DeviceMemory& memory);

  // As ModelDeviceFeed's decode_batch_fed, argmax_batch_to_feed (sampled rows included) and fed_step_settled.
  Result<DevicePtr> decode(const StepView& step, Stream stream);
  Result<void> argmax(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream);
  void settled(Ticket ticket);
  const GraphFigures& graph_figures() const { return graphs_.figures(); }

 private:
  // A step whose upload memory and graph are in use.
  struct Flight {
    Ticket ticket;
    const void* upload = nullptr;  // none: free
  };
  // Of decode, for the argmax that follows.
  struct Forwarded {
    Ticket ticket;
    std::uint32_t n_rows = 0;
    std::uint32_t n_logits = 0;
    std::uint32_t n_logprobs = 0;
  };

  Result<void> on_stream(Stream stream);
  Result<Flight*> take_flight(const StepView& step);
  bool by_graph(const StepShape& shape) const { return max_graphs_ != 0 && shape.decode && shape.n_lora_runs == 0; }
  Result<void> forward(const StepView& step, const StepShape& shape, std::uint32_t n_rows, std::uint32_t n_tokens, Stream stream);
  void sample(const StepView& step);
  Result<void> layers(const kernels::FeedArgs& feed, std::uint32_t n_tokens, std::uint32_t n_outputs, std::uint32_t n_lora_runs,
                      Stream stream);

  const CudaParts& m_;
  const std::size_t max_graphs_;
  std::unique_ptr<kernels::CublasLt> cublaslt_;  // null: our own kernels make every product
  std::unique_ptr<kernels::Kernels> kernels_;    // on native_
  void* native_ = nullptr;
  CudaWorkspace work_;
  std::vector<kernels::LoraRun> lora_runs_;  // of the step that is being enqueued
  std::vector<Flight> flights_;
  std::optional<Forwarded> forwarded_;
  StepGraphs graphs_;
};

}  // namespace troupe::device
