#include "device/models/scripted_oracle.h"

namespace troupe::device {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Three different ids below n (n >= 3).
std::array<Token, 3> three(std::uint64_t choice, std::uint32_t n) {
  const auto a = static_cast<std::uint32_t>(choice % n);
  const auto second = static_cast<std::uint32_t>((choice >> 21) % (n - 1));
  const auto third = static_cast<std::uint32_t>((second + 1 + (choice >> 42) % (n - 2)) % (n - 1));
  return {a, (a + 1 + second) % n, (a + 1 + third) % n};
}

}  // namespace

Result<void> validate(const ScriptedOptions& o) {
  const auto bad = [](const char* what) { return Error{ErrorCode::bad_request, what}; };
  if (o.vocab < 8) return bad("scripted model: vocab must be at least 8");
  if (o.context == 0 || o.block_size == 0 || o.kv_blocks == 0 || o.n_slots == 0 || o.max_rows == 0 || o.max_step_tokens == 0 ||
      o.max_depth == 0) {
    return bad("scripted model: context, block_size, kv_blocks, n_slots, max_rows, max_step_tokens and max_depth must be above 0");
  }
  if (o.window == 1) return bad("scripted model: window must be 0 (none) or at least 2");
  if (o.eos_per_mille > 1000) return bad("scripted model: eos_per_mille must be at most 1000");
  if (o.step_ns < 0 || o.row_ns < 0 || o.token_ns < 0 || o.spin_ns < 0) return bad("scripted model: times must not be negative");
  if (!o.texts.empty() && o.texts.size() != o.vocab) return bad("scripted model: texts must have one entry per id of the vocabulary");
  if (!o.table.empty() && o.table.size() != o.vocab) return bad("scripted model: table must have one entry per id of the vocabulary");
  for (const Token id : o.table) {
    if (id >= o.vocab) return bad("scripted model: table names an id outside the vocabulary");
  }
  return success();
}

std::uint64_t scripted_start(const ScriptedOptions& options) { return mix(options.seed); }

std::uint64_t scripted_state(std::uint64_t before, Token id, std::uint32_t adapter_slot) {
  return mix(before ^ mix(std::uint64_t{adapter_slot} << 32 | id));
}

std::uint64_t scripted_term(std::uint64_t state, std::uint32_t position) { return mix(state + position); }

std::uint64_t scripted_choice(std::uint64_t sum, std::uint64_t state) { return mix(sum ^ state); }

std::array<Token, 3> scripted_best(const ScriptedOptions& options, std::uint64_t choice, Token last) {
  const std::array<Token, 3> usual = three(choice, options.vocab - 1);
  const bool ends = mix(choice) % 1000 < options.eos_per_mille;
  if (options.table.empty() && !ends) return usual;
  const Token first = ends ? options.eos() : options.table[last];
  std::array<Token, 3> best{first};
  for (std::size_t n = 1, i = 0; n < 3; ++i) {
    if (usual[i] != first) best[n++] = usual[i];
  }
  return best;
}

std::optional<Token> scripted_pick(const std::array<Token, 3>& best, RowMask mask) {
  for (const Token id : best) {
    if (id != mask.a && id != mask.b) return id;
  }
  return std::nullopt;
}

void scripted_logits(const ScriptedOptions& options, std::uint64_t choice, Token last, std::span<float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(mix(choice + i) >> 40) * 0x1p-21f - 4.0f;
  logits[options.eos()] = -20.0f;
  const std::array<Token, 3> best = scripted_best(options, choice, last);
  for (std::size_t i = 0; i < best.size(); ++i) logits[best[i]] = 10.0f - static_cast<float>(i);
}

ScriptedOracle::ScriptedOracle(const ScriptedOptions& options, std::uint32_t adapter_slot)
    : options_(options), adapter_slot_(adapter_slot), state_(scripted_start(options)) {}

void ScriptedOracle::push(Token id) {
  state_ = scripted_state(state_, id, adapter_slot_);
  if (options_.attention) {
    const std::uint64_t term = scripted_term(state_, length_);
    sum_ += term;
    if (options_.window != 0) {
      terms_.push_back(term);
      if (length_ >= options_.window) sum_ -= terms_[length_ - options_.window];
    }
  }
  ++length_;
  last_ = id;
}

Token ScriptedOracle::next(RowMask mask) const {
  return scripted_pick(scripted_best(options_, scripted_choice(sum_, state_), last_), mask).value_or(0);
}

std::vector<float> ScriptedOracle::logits() const {
  std::vector<float> logits(options_.vocab);
  scripted_logits(options_, scripted_choice(sum_, state_), last_, logits);
  return logits;
}

Token scripted_next(const ScriptedOptions& options, std::span<const Token> history, RowMask mask, std::uint32_t adapter_slot) {
  ScriptedOracle oracle(options, adapter_slot);
  for (const Token id : history) oracle.push(id);
  return oracle.next(mask);
}

}  // namespace troupe::device
