// What the scripted model answers, as a function of a history alone: the arithmetic that the model runs on the device
// and that a test compares with. No threads, no device.
//
// After each position i a sequence has a state s(i) = mix(s(i-1), id(i), adapter). What follows position p is chosen by
// a hash of p and, if `attention` is on, of every s(0) … s(p): like an attention layer, it changes when any position
// that the block table names was lost, overwritten or written out of order. With a window, of its last states only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "messages/error.h"
#include "messages/feed.h"
#include "messages/ids.h"

namespace troupe::device {

// Something that goes wrong at step `step` (Ticket::step), once.
struct ScriptedFault {
  enum class Kind : std::uint8_t {
    fail_step,  // nothing of the step is written; its event completes with `code`
    nan_row,    // row `row` has no token (its logits are NaN)
    hang_step,  // the step does not complete before ScriptedModel::release()
  };
  Kind kind = Kind::fail_step;
  std::uint64_t step = 0;
  std::uint32_t row = 0;
  ErrorCode code = ErrorCode::device_failed;
};

struct ScriptedOptions {
  std::uint32_t vocab = 256;  // at least 8; the last id is the end of sequence
  std::uint32_t context = 512;
  std::uint32_t block_size = 16;
  std::uint32_t kv_blocks = 256;
  std::uint32_t n_slots = 32;
  std::uint32_t max_rows = 32;
  std::uint32_t max_step_tokens = 512;
  std::uint32_t max_logits_rows = 8;
  std::uint32_t max_depth = 4;
  bool prefill_stream = false;  // it has a feed for steps of prefill on a stream of their own, and takes copies on another
  std::uint64_t seed = 1;
  std::uint32_t eos_per_mille = 0;  // how often the next token is the end of sequence
  std::uint32_t window = 0;         // positions that attention reads; 0 = all before it, else at least 2
  bool attention = true;            // off: only the last state counts, at a cost that does not grow with the position
  // If not empty, `vocab` entries: the best token after each id, instead of the hash's.
  std::vector<Token> table = {};
  // If not empty, `vocab` entries: the text of each id. Else "t0 ", "t1 ", …
  std::vector<std::string> texts = {};
  // A step takes step_ns + row_ns * rows + token_ns * tokens, from when the stream reaches it. 0 = as fast as it goes.
  TimeNs step_ns = 0;
  TimeNs row_ns = 0;
  TimeNs token_ns = 0;
  TimeNs spin_ns = 150'000;  // the end of that time is spun, not slept
  std::vector<ScriptedFault> faults = {};
  std::uint32_t log_steps = 0;  // how many steps' times are kept (ScriptedModel::times)

  Token eos() const { return vocab - 1; }
};

// bad_request: the first option that makes no sense.
Result<void> validate(const ScriptedOptions& options);

std::uint64_t scripted_start(const ScriptedOptions& options);
std::uint64_t scripted_state(std::uint64_t before, Token id, std::uint32_t adapter_slot);
// What one position adds to the hash of all.
std::uint64_t scripted_term(std::uint64_t state, std::uint32_t position);
// The hash that chooses what follows: `sum` of the terms of all positions (0 without attention), and the last state.
std::uint64_t scripted_choice(std::uint64_t sum, std::uint64_t state);

// The three ids with the highest logits, best first.
std::array<Token, 3> scripted_best(const ScriptedOptions& options, std::uint64_t choice, Token last);
// Masked argmax; none: the mask leaves nothing (cannot happen with two ids).
std::optional<Token> scripted_pick(const std::array<Token, 3>& best, RowMask mask);
// float[vocab]: scripted_best at 10, 9 and 8, the end of sequence at -20 unless among them, the rest in [-4, 4).
void scripted_logits(const ScriptedOptions& options, std::uint64_t choice, Token last, std::span<float> logits);

// A history that grows, and what follows it.
class ScriptedOracle {
 public:
  explicit ScriptedOracle(const ScriptedOptions& options, std::uint32_t adapter_slot = 0);
  void push(Token id);
  Token next(RowMask mask = {}) const;  // of a history that is not empty
  std::vector<float> logits() const;

 private:
  const ScriptedOptions& options_;
  std::uint32_t adapter_slot_;
  std::uint64_t state_;
  std::uint64_t sum_ = 0;
  std::vector<std::uint64_t> terms_;  // of all positions, with a window
  std::uint32_t length_ = 0;
  Token last_ = 0;
};

// What the model answers after `history` (not empty).
Token scripted_next(const ScriptedOptions& options, std::span<const Token> history, RowMask mask = {}, std::uint32_t adapter_slot = 0);

}  // namespace troupe::device
