// What the Llama models of all devices have in common around the forward pass: their options, what they say of themselves, what
// they refuse in a step, and the rows of a step as kernels take them.
//
// Nothing is kept here; the functions belong to the thread of the model that calls them.
#pragma once

#include <cstdint>
#include <string>

#include "device/model.h"
#include "device/models/device_memory.h"
#include "device/models/llama_adapters.h"
#include "device/models/llama_forward.h"
#include "device/models/model_config.h"
#include "device/models/sample_rows.h"
#include "kernels/host/target.h"
#include "kernels/kernels.h"
#include "messages/error.h"

namespace troupe::device {

// CUDA: who makes the products of BF16 weights. cublaslt: NVIDIA's library, whose bits depend on the shape of a product, so that
// R1 does not hold; quantized weights stay with our kernels.
enum class Gemm : std::uint8_t { own, cublaslt };

struct LlamaOptions {
  bool exact = false;    // host: F32 activations and KV; else 8-bit activations and 16-bit KV
  unsigned threads = 1;  // host: that compute, the stream's own included
  std::uint32_t kv_blocks = 256;
  std::uint32_t block_size = 16;  // positions
  std::uint32_t max_rows = 32;
  std::uint32_t max_step_tokens = 512;
  std::uint32_t max_logits_rows = 8;
  std::uint32_t n_slots = 64;  // block tables
  std::uint32_t max_depth = 2;
  std::uint32_t max_loras = 0;  // adapter slots
  std::uint32_t max_lora_rank = 16;
  std::uint32_t context_limit = 0;                  // at most the model's context; 0 = the model's
  Shared<TokenTable> tokens;                        // for ModelInfo
  kernels::Target target = kernels::best_target();  // host; all give the same bits
  Gemm gemm = Gemm::own;                            // host: own
  std::string cublaslt;                             // the library's path; empty: where it is found
  std::uint32_t ssm_states = 0;                     // of a hybrid model: versions of recurrent state; 0 = depth + 1 for each slot
  bool prefill_stream = false;                      // CUDA: it has a feed, and room, for steps of prefill on a stream of their own
  std::uint32_t max_graphs = 8;                     // CUDA: decode steps that are kept as graphs, one per size; 0 = none
};

// bad_request: an option out of its range.
Result<void> check(const LlamaOptions& options);

// Sets what the options leave to the model: context_limit and ssm_states. bad_request: fewer versions of recurrent state than one
// sequence needs.
Result<void> complete(LlamaOptions& options, const ModelConfig& config);

// `options` as complete() left them. The formats of its weights are appended to `arithmetic`.
ModelInfo llama_info(const ModelConfig& config, const LlamaWeights& weights, const LlamaOptions& options, std::string arithmetic);

// Errors of these three: what alloc_device answers.
Result<LlamaScratch> llama_scratch(DeviceMemory& memory, const ModelConfig& config, const LlamaOptions& options);
Result<kernels::BlockTables> llama_tables(DeviceMemory& memory, const LlamaOptions& options);
// Of a model without recurrent layers: no memory.
Result<kernels::RecurrentStates> llama_states(DeviceMemory& memory, const ModelConfig& config, const LlamaOptions& options);

// Where bytes [begin, begin + bytes) of a version's state are, over all layers. bad_plan: beyond its end, or no such version.
Result<std::byte*> state_at(const kernels::RecurrentStates& states, std::uint32_t version, std::size_t begin, std::size_t bytes);

// Cell arrays that a step may name: the ring of the deepest pipeline, twice.
inline std::size_t max_cell_arrays(const LlamaOptions& options) { return 2 * (std::size_t{options.max_depth} + 1); }

// The tokens over all rows. bad_plan: more rows, tokens or logits than the options say, or a slot, position, id, cell or ring
// slot out of range; an adapter slot that is not in the table: bad_plan, or unsupported if there are none.
Result<std::uint32_t> check_step(const StepView& step, const LlamaOptions& options, const ModelConfig& config,
                                 const kernels::BlockTables& tables, const LlamaAdapters& adapters);

struct StepShape {
  std::uint32_t n_outputs = 0;  // rows that want a token
  std::uint32_t n_logits = 0;   // rows of the logits that are read back
  std::uint32_t n_lora_runs = 0;
  std::uint32_t n_logprobs = 0;
  bool decode = false;  // every row is one token, and wants one
};

// 32-bit words of histories, barred ids and biases that a step may bring for its sampled rows.
std::uint32_t max_sample_words(const LlamaOptions& options);

// Of a step that check_step took. rows: [step.rows.size()]; runs: room for as many.
StepShape to_kernels(const StepView& step, kernels::StepRow* rows, kernels::LoraRun* runs);

}  // namespace troupe::device
