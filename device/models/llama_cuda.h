// A model of the families that ModelConfig describes (Llama and its kin), on a device that runs kernels/cuda.
//
// Weights are on the device as they are stored. A step's parameters (rows, ids, table changes, cell arrays) go up by one copy
// from the step's upload memory; then its kernels, the copies of what the host reads and the event follow on the same stream,
// so stream order is all the order there is. All steps go on one stream; copies of KV blocks go on it or on another, by another
// thread, and who enqueues them orders them against the steps (info().streams). Nothing here waits but create() and load_adapter().
//
// A decode step (every row one token, every row wants one, no adapters) is filled up to a power of two of rows and replayed as a
// graph, captured when its size first comes: all that changes between two such steps is in device memory or in the launches
// around the graph. Rows that fill up have no block table, so they write no KV and read none. Where a capture fails, the same
// kernels are launched one by one.
//
// options.gemm cublaslt: products of BF16 weights are made by cuBLASLt (kernels/cuda/cublaslt.h), and R1 does not hold; the
// arithmetic_id says so. A product that it refuses fails the step.
//
// R4: an upload area or a graph is used again only when the step that uses it has settled (fed_step_settled); until then a
// step that brings the same area is refused.
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
