#include "device/models/cuda_workspace.h"

#include <algorithm>

#include "kernels/cuda/families.h"

namespace troupe::device {

namespace {

constexpr std::size_t kPartialBytes = 64u << 20;  // of scratch for attention, at most

}  // namespace

Result<CudaWorkspace> cuda_workspace(DeviceMemory& memory, const ModelConfig& c, const LlamaOptions& o, std::size_t upload_bytes) {
  CudaWorkspace w;
  TROUPE_TRY(w.scratch, llama_scratch(memory, c, o));
  TROUPE_TRY(w.params, memory.get<std::byte>(upload_bytes));
  TROUPE_TRY(w.readback, memory.get<kernels::RowReadback>(o.max_rows));
  TROUPE_TRY(w.logprobs, memory.get<kernels::RowLogprobs>(o.max_rows));
  TROUPE_TRY(w.logits_out, memory.get<float>(std::size_t{o.max_logits_rows} * c.vocab));
  TROUPE_TRY(w.kernels.sample_work, memory.get<float>(std::size_t{o.max_rows} * c.vocab));
  TROUPE_TRY(w.kernels.sample_counts, memory.get<std::uint32_t>(std::size_t{o.max_rows} * c.vocab));

  const std::size_t a_token = kernels::attention_partial_floats(1, c.heads, c.head_dim, o.context_limit);
  const std::size_t most = std::max<std::size_t>(kPartialBytes / sizeof(float) / a_token, 1);
  w.kernels.max_context = o.context_limit;
  w.kernels.max_decode_tokens = static_cast<std::uint32_t>(std::min<std::size_t>({o.max_rows, 64, most}));
  TROUPE_TRY(w.kernels.partial, memory.get<float>(a_token * w.kernels.max_decode_tokens));
  if (o.max_loras != 0) {
    w.kernels.max_lora_rank = o.max_lora_rank;
    TROUPE_TRY(w.kernels.lora_shrunk, memory.get<float>(kernels::lora_scratch_floats(o.max_step_tokens, o.max_lora_rank)));
  }
  return w;
}

}  // namespace troupe::device
