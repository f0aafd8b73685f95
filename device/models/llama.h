// A model of the families that ModelConfig describes (Llama and its kin), on the host device.
//
// Each step is two functions on the stream: the forward pass (decode_batch_fed) and the argmax with the readback
// (argmax_batch_to_feed); block tables, cells, KV and scratch are touched by nothing else, so stream order is all the
// order there is. One stream only. Steps in flight: at most max_depth + 1. Nothing is allocated after create().
//
// Threads: create and the destructor belong to the owner of the model's life (the stream must be empty by then);
// decode_batch_fed, argmax_batch_to_feed and fed_step_settled to the stream actor; info() to any.
#pragma once

#include <memory>

#include "device/driver.h"
#include "device/model.h"
#include "device/models/llama_step.h"
#include "device/models/model_config.h"
#include "device/models/tensor_source.h"
#include "messages/error.h"

namespace troupe::device {

class LlamaModel : public ModelDeviceFeed {
 public:
  // The driver must outlive the model. Errors: bad_file and unsupported of the tensors; bad_request: an option out of its
  // range, a target that this CPU does not have; what alloc_device answers.
  static Result<std::unique_ptr<LlamaModel>> create(std::shared_ptr<const TensorSource> source, ModelConfig config,
                                                    const LlamaOptions& options, Driver& driver);

  // Refused before anything is enqueued: what check_step refuses; bad_plan: argmax_batch_to_feed of another step than
  // decode_batch_fed took last; ring_exhausted: more than max_depth + 1 steps in flight.
  // While the device runs, a row whose positions lack a KV block is poisoned alone (kernels.h, feed_resolve).
};

}  // namespace troupe::device
