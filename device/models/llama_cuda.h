// A model of the families that ModelConfig describes (Llama and its kin), on a device that runs kernels/cuda.
//
// Weights are on the device as they are stored. Steps are as cuda_steps.h says: on one stream, or with options.prefill_stream on two,
// each with its own feed. Copies of KV blocks go on the first or on another, by another thread, and who enqueues them orders them
// against the steps (info().streams). Nothing here waits but create() and load_adapter().
//
// options.gemm cublaslt: products of BF16 weights are made by cuBLASLt (kernels/cuda/cublaslt.h), and R1 does not hold; the
// arithmetic_id says so. A product that it refuses fails the step.
//
// Threads: as LlamaModel (llama.h); load_adapter by any, which it binds to the device. Nothing is allocated after create() but at the first
// step of a stream and at captures.
#pragma once

#include <cstdint>
#include <memory>

#include "device/driver.h"
#include "device/model.h"
#include "device/models/llama_step.h"
#include "device/models/model_config.h"
#include "device/models/step_graphs.h"
#include "device/models/tensor_source.h"
#include "messages/error.h"

namespace troupe::device {

class LlamaCudaModel : public ModelDeviceFeed {
 public:
  // The driver must outlive the model; the calling thread has bound its device. The source is not needed afterwards. Errors:
  // bad_file and unsupported of the tensors; bad_request: an option out of its range; unsupported: options.exact, heads of a
  // size that the kernels don't take, or cublaslt where there is no such library or no BF16 weight; what the driver says.
  static Result<std::unique_ptr<LlamaCudaModel>> create(std::shared_ptr<const TensorSource> source, ModelConfig config,
                                                        const LlamaOptions& options, Driver& driver);

  // Refused before anything is enqueued: what check_step refuses; bad_plan: more ids than a step has, or table changes than max_rows tables
  // hold, no upload memory, argmax_batch_to_feed of another step than decode_batch_fed took last; ring_exhausted: more than max_depth + 1
  // steps in flight, or the upload memory of one of them. A step that fails later has left a part of itself on the stream. While the device
  // runs, a row whose positions lack a KV block is poisoned alone (kernels.h, feed_resolve).

  virtual GraphFigures graph_figures() const = 0;  // the stream actor's thread
};

}  // namespace troupe::device
