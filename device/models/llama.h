// A model of the families that ModelConfig describes (Llama and its kin), on the host device.
//
// Each step is two functions on the stream: the forward pass (decode_batch_fed) and the argmax with the readback
// (argmax_batch_to_feed); block tables, cells, KV and scratch are touched by nothing else, so stream order is all the
// order there is. One stream only. Steps in flight: at most max_depth + 1. Nothing is allocated after create().
//
// Threads: create and the destructor belong to the owner of the model's life (the stream must be empty by then);
// decode_batch_fed, argmax_batch_to_feed and fed_step_settled to the stream actor; info() to any.
#pragma once

#include <cstdint>
#include <memory>

#include "device/driver.h"
#include "device/model.h"
#include "device/models/model_config.h"
#include "device/models/tensor_source.h"
#include "kernels/host/target.h"
#include "messages/error.h"

namespace troupe::device {

struct LlamaOptions {
  bool exact = false;    // F32 activations and KV; else 8-bit activations and 16-bit KV
  unsigned threads = 1;  // that compute, the stream's own included
  std::uint32_t kv_blocks = 256;
  std::uint32_t block_size = 16;  // positions
  std::uint32_t max_rows = 32;
  std::uint32_t max_step_tokens = 512;
  std::uint32_t max_logits_rows = 8;
  std::uint32_t n_slots = 64;  // block tables
  std::uint32_t max_depth = 2;
  std::uint32_t max_loras = 0;      // adapter slots
  std::uint32_t max_lora_rank = 16;
  std::uint32_t context_limit = 0;  // at most the model's context; 0 = the model's
  Shared<TokenTable> tokens;        // for ModelInfo
  kernels::Target target = kernels::best_target();  // all give the same bits
};

class LlamaModel : public ModelDeviceFeed {
 public:
  // The driver must outlive the model. Errors: bad_file and unsupported of the tensors; bad_request: an option out of its
  // range, a target that this CPU does not have; what alloc_device answers.
  static Result<std::unique_ptr<LlamaModel>> create(std::shared_ptr<const TensorSource> source, ModelConfig config,
                                                    const LlamaOptions& options, Driver& driver);

  // Refused before anything is enqueued: bad_plan: more rows, tokens or logits than the options say, or a slot,
  // position, id, cell or ring slot out of range; argmax_batch_to_feed of another step than decode_batch_fed took last.
  // An adapter slot that is not in the table: bad_plan, or unsupported if there are none. ring_exhausted: more than max_depth + 1 steps in flight.
  // While the device runs, a row whose positions lack a KV block is poisoned alone (kernels.h, feed_resolve).
};

}  // namespace troupe::device
