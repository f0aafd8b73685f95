// What the rest of the runtime may know of a model (seed: DeviceIo::model). Immutable after load.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "messages/ids.h"
#include "messages/shared.h"

namespace troupe {

// id -> bytes, and which ids are control tokens (no text). Stop strings are matched over it in the scheduler's core.
struct TokenTable {
  std::vector<std::uint32_t> offsets;  // vocab + 1; empty table: no text is made
  std::string bytes;
  std::vector<std::uint8_t> special;  // vocab; 1 = no text
  std::string_view text(Token id) const {
    if (id + 1u >= offsets.size() || special[id]) return {};
    return std::string_view(bytes).substr(offsets[id], offsets[id + 1] - offsets[id]);
  }
  void clear() {
    offsets.clear();
    bytes.clear();
    special.clear();
  }
};

// The end of the arithmetic_id of what gives up R1: its bits depend on what else is in a batch, so that two devices with that id, or
// one at two times, need not agree.
inline constexpr std::string_view kBatchDependent = "/cublaslt";

struct ModelInfo {
  std::string name;           // "SmolLM2 135M Instruct"
  std::string architecture;   // "llama"
  std::string arithmetic_id;  // device kind, kernel target, mode, format: equal ids give equal bits (R1), but for kBatchDependent
  std::uint32_t vocab_size = 0;
  std::uint32_t n_layers = 0;
  std::uint32_t context_length = 0;     // positions 0 .. context_length - 1
  std::uint32_t block_size = 16;        // positions in a KV block
  std::uint32_t window = 0;             // a position reads itself and the window - 1 before it, in every layer; 0 = all before it
  std::uint32_t kv_blocks = 0;          // blocks in the device's KV pool
  std::uint32_t n_slots = 0;            // device-side block tables: sequences with device state at a time
  std::uint32_t max_depth = 1;          // most steps in flight (1: every step settles before the next launches)
  std::uint32_t max_rows = 32;          // rows in a step
  std::uint32_t max_step_tokens = 512;  // tokens in a step, over all rows
  std::uint32_t max_logits_rows = 8;    // rows in a step that read logits back; over it the plan is cut
  std::uint32_t streams = 1;            // of the device that may work on it at a time; 2: KV blocks are copied on one of their own;
                                        // 3: and steps of prefill run on one
  bool supports_device_token_feed = false;
  bool supports_device_sampling = false;  // rows that sample run ahead as well
  std::uint32_t max_sample_words = 0;     // that the sampled rows of a step bring: histories, barred ids, and two for each bias
  bool has_ssm_layers = false;            // recurrent layers: sequences have state beside their KV
  std::uint32_t ssm_states = 0;           // versions of it in the device's pool, of all sequences; a sequence has depth + 1
  std::vector<Token> eos_ids;
  Shared<TokenTable> tokens;
  std::uint32_t max_loras = 0;      // adapters at a time
  std::uint32_t max_lora_rank = 0;  // of an adapter in a slot

  // Leading blocks of a sequence that no position from `position` on reads.
  std::uint32_t blocks_behind(std::uint32_t position) const {
    return window == 0 || position < window ? 0 : (position + 1 - window) / block_size;
  }
  // The fewest blocks in which a sequence can grow to `positions`: all of them, or what one position can read.
  std::uint64_t blocks_needed(std::uint64_t positions) const {
    const std::uint64_t all = (positions + block_size - 1) / block_size;
    if (window == 0) return all;
    const std::uint64_t read = (std::uint64_t{window} - 1 + block_size - 1) / block_size + 1;
    return all < read ? all : read;
  }
};

template <class I>
auto inspect(I& f, TokenTable& x) {
  return f(x.offsets, x.bytes, x.special);
}
template <class I>
auto inspect(I& f, ModelInfo& x) {
  return f(x.name, x.architecture, x.arithmetic_id, x.vocab_size, x.n_layers, x.context_length, x.block_size, x.window, x.kv_blocks,
           x.n_slots, x.max_depth, x.max_rows, x.max_step_tokens, x.max_logits_rows, x.streams, x.supports_device_token_feed,
           x.supports_device_sampling, x.max_sample_words, x.has_ssm_layers, x.ssm_states, x.eos_ids, x.tokens, x.max_loras,
           x.max_lora_rank);
}

std::string label(const ModelInfo& x);  // "model{llama, vocab=49152, ...}"

}  // namespace troupe
