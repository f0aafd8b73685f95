#include "device/models/llama_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

namespace troupe::device {

namespace {

static_assert(sizeof(kernels::RowReadback) == sizeof(Readback) && offsetof(kernels::RowReadback, id) == offsetof(Readback, id) &&
              offsetof(kernels::RowReadback, status) == offsetof(Readback, status) &&
              offsetof(kernels::RowReadback, tag) == offsetof(Readback, tag));
static_assert(static_cast<int>(kernels::Status::no_token) == static_cast<int>(CellStatus::no_token) &&
              static_cast<int>(kernels::Status::stale_feed) == static_cast<int>(CellStatus::stale_feed) &&
              static_cast<int>(kernels::Status::poisoned) == static_cast<int>(CellStatus::poisoned));
static_assert(kernels::kNone == RowMask::kNone && kernels::kNone == DeviceRow::kNone && kernels::kNone == kNoBlock);
static_assert(sizeof(kernels::TableChange) == sizeof(TableDelta) && offsetof(kernels::TableChange, index) == offsetof(TableDelta, index) &&
              offsetof(kernels::TableChange, block) == offsetof(TableDelta, block));

Error bad_plan(std::string what) { return {ErrorCode::bad_plan, std::move(what)}; }

}  // namespace

Result<void> check(const LlamaOptions& options) {
  const auto positive = [](std::uint32_t n, const char* what) -> Result<void> {
    if (n == 0 || n > (1u << 24)) return Error{ErrorCode::bad_request, fmt::format("{} is {}; 1 to {} is expected", what, n, 1u << 24)};
    return success();
  };
  TROUPE_TRY(positive(options.threads, "threads"));
  TROUPE_TRY(positive(options.kv_blocks, "kv_blocks"));
  TROUPE_TRY(positive(options.block_size, "block_size"));
  TROUPE_TRY(positive(options.max_rows, "max_rows"));
  TROUPE_TRY(positive(options.max_step_tokens, "max_step_tokens"));
  TROUPE_TRY(positive(options.n_slots, "n_slots"));
  TROUPE_TRY(positive(options.max_depth, "max_depth"));
  if (options.max_loras != 0) {
    TROUPE_TRY(positive(options.max_loras, "max_loras"));
    TROUPE_TRY(positive(options.max_lora_rank, "max_lora_rank"));
  }
  return success();
}

Result<void> complete(LlamaOptions& o, const ModelConfig& config) {
  o.context_limit = o.context_limit == 0 ? config.context : std::min(o.context_limit, config.context);
  if (o.ssm_states == 0) o.ssm_states = o.n_slots * (o.max_depth + 1);
  if (o.ssm_states > o.max_depth) return success();
  return Error{ErrorCode::bad_request, fmt::format("{} versions of recurrent state; a sequence needs {}", o.ssm_states, o.max_depth + 1)};
}

ModelInfo llama_info(const ModelConfig& config, const LlamaWeights& weights, const LlamaOptions& options, std::string arithmetic) {
  std::set<std::string> formats;
  const auto add = [&](const kernels::Weight& w) { formats.insert(kernels::name(w.format)); };
  for (const LlamaLayer& l : weights.layers) {
    for (const auto* w : {&l.gate, &l.up, &l.down}) add(*w);
    for (const auto* w : {&l.q, &l.k, &l.v, &l.o})
      if (!l.recurrent) add(*w);
    for (const auto* w : {&l.delta.qkv, &l.delta.z, &l.delta.a, &l.delta.b, &l.delta.out})
      if (l.recurrent) add(*w);
  }
  add(weights.embedding);
  add(weights.output);
  ModelInfo info;
  info.name = config.name;
  info.architecture = name(config.architecture);
  info.arithmetic_id = std::move(arithmetic);
  for (const std::string& f : formats) info.arithmetic_id += "/" + f;
  info.vocab_size = config.vocab;
  info.n_layers = config.layers;
  info.context_length = options.context_limit;
  info.block_size = options.block_size;
  info.window = config.sliding_window < options.context_limit ? config.sliding_window : 0;
  info.kv_blocks = options.kv_blocks;
  info.n_slots = options.n_slots;
  info.max_depth = options.max_depth;
  info.max_rows = options.max_rows;
  info.max_step_tokens = options.max_step_tokens;
  info.max_logits_rows = options.max_logits_rows;
  info.supports_device_token_feed = true;
  info.supports_device_sampling = true;
  info.max_sample_words = max_sample_words(options);
  info.has_ssm_layers = config.recurrent_layers() != 0;
  info.ssm_states = info.has_ssm_layers ? options.ssm_states : 0;
  info.eos_ids = config.eos_ids;
  info.tokens = options.tokens;
  info.max_loras = options.max_loras;
  info.max_lora_rank = options.max_loras == 0 ? 0 : options.max_lora_rank;
  return info;
}

Result<kernels::BlockTables> llama_tables(DeviceMemory& memory, const LlamaOptions& o) {
  kernels::BlockTables tables{nullptr, o.n_slots, (o.context_limit + o.block_size - 1) / o.block_size};
  TROUPE_TRY(tables.entries, memory.get<std::uint32_t>(static_cast<std::size_t>(o.n_slots) * tables.blocks_per_slot));
  return tables;
}

Result<kernels::RecurrentStates> llama_states(DeviceMemory& memory, const ModelConfig& config, const LlamaOptions& o) {
  if (config.recurrent_layers() == 0) return kernels::RecurrentStates{};
  kernels::RecurrentStates states = delta_states(config, o.ssm_states);
  TROUPE_TRY(states.data, memory.get<float>(states.floats()));
  return states;
}

Result<std::byte*> state_at(const kernels::RecurrentStates& states, std::uint32_t version, std::size_t begin, std::size_t bytes) {
  const std::size_t all = states.version_floats() * sizeof(float);
  if (version < states.n_versions && begin <= all && bytes <= all - begin) {
    return reinterpret_cast<std::byte*>(states.at(version, 0)) + begin;
  }
  return bad_plan(fmt::format("a copy of bytes {}+{} of version {} of recurrent state; there are {} versions of {} bytes", begin, bytes,
                              version, states.n_versions, all));
}

Result<LlamaScratch> llama_scratch(DeviceMemory& memory, const ModelConfig& c, const LlamaOptions& o) {
  LlamaScratch scratch;
  const std::size_t n = o.max_step_tokens, r = o.max_rows;
  TROUPE_TRY(scratch.tokens, memory.get<kernels::StepToken>(n));
  TROUPE_TRY(scratch.angles, memory.get<float>(n * c.rotated));
  TROUPE_TRY(scratch.x, memory.get<float>(n * c.width));
  TROUPE_TRY(scratch.h, memory.get<float>(n * c.width));
  TROUPE_TRY(scratch.qkv, memory.get<float>(n * (c.q_width() + 2 * c.kv_width())));
  TROUPE_TRY(scratch.attended, memory.get<float>(n * c.q_width()));
  if (c.gated_attention) {
    TROUPE_TRY(scratch.pairs, memory.get<float>(n * c.q_rows()));
    TROUPE_TRY(scratch.head_gates, memory.get<float>(n * c.q_width()));
  }
  if (c.recurrent_layers() != 0) {
    DeltaScratch& d = scratch.delta;
    TROUPE_TRY(d.input, memory.get<float>(n * c.delta.channels()));
    TROUPE_TRY(d.mixed, memory.get<float>(n * c.delta.channels()));
    TROUPE_TRY(d.z, memory.get<float>(n * c.delta.value_width()));
    TROUPE_TRY(d.out, memory.get<float>(n * c.delta.value_width()));
    TROUPE_TRY(d.a, memory.get<float>(n * c.delta.v_heads));
    TROUPE_TRY(d.b, memory.get<float>(n * c.delta.v_heads));
  }
  TROUPE_TRY(scratch.gate, memory.get<float>(n * c.ffn));
  TROUPE_TRY(scratch.up, memory.get<float>(n * c.ffn));
  TROUPE_TRY(scratch.outputs, memory.get<float>(r * c.width));
  TROUPE_TRY(scratch.logits, memory.get<float>(r * c.vocab));
  return scratch;
}

// One row's whole history, and room for lists of others.
std::uint32_t max_sample_words(const LlamaOptions& options) { return options.context_limit + 4096; }

namespace {

Result<void> check_samples(const StepView& step, const LlamaOptions& o) {
  const auto inside = [](std::uint32_t begin, std::uint32_t n, std::size_t size) { return begin <= size && n <= size - begin; };
  std::uint64_t words = 0;
  std::uint32_t next = 0;
  for (const RowSample& s : step.samples) {
    if (s.row < next || s.row >= step.rows.size() || !step.rows[s.row].sampled || !step.rows[s.row].wants_token) {
      return bad_plan(fmt::format("row {} is to be sampled, and is not a row for it", s.row));
    }
    next = s.row + 1;
    if (!inside(s.bias_begin, s.n_biases, step.biases.size()) || !inside(s.bar_begin, s.n_bars, step.tokens.size()) ||
        !inside(s.history_begin, s.n_history, step.tokens.size()) || s.n_history > step.rows[s.row].position) {
      return bad_plan(fmt::format("row {}: its biases, barred ids or history lie past the step's", s.row));
    }
    if (s.logprobs_row != RowSample::kNone && s.logprobs_row >= o.max_rows) {
      return bad_plan(fmt::format("row {}: log-probabilities {} of {}", s.row, s.logprobs_row, o.max_rows));
    }
    words += 2ull * s.n_biases + s.n_bars + s.n_history;
  }
  const auto sampled =
      static_cast<std::size_t>(std::count_if(step.rows.begin(), step.rows.end(), [](const DeviceRow& r) { return r.sampled; }));
  if (sampled != step.samples.size()) return bad_plan(fmt::format("{} rows to sample, and how for {}", sampled, step.samples.size()));
  if (words > max_sample_words(o)) return bad_plan(fmt::format("the sampled rows bring {} words; at most {}", words, max_sample_words(o)));
  return success();
}

}  // namespace

Result<std::uint32_t> check_step(const StepView& step, const LlamaOptions& o, const ModelConfig& config, const kernels::BlockTables& tables,
                                 const LlamaAdapters& adapters) {
  if (step.rows.size() > o.max_rows) return bad_plan(fmt::format("{} rows in a step; the model takes {}", step.rows.size(), o.max_rows));
  if (step.cell_arrays.size() > max_cell_arrays(o)) {
    return bad_plan(fmt::format("{} cell arrays; the model takes {}", step.cell_arrays.size(), max_cell_arrays(o)));
  }
  for (const TableDelta& d : step.deltas) {
    if (d.slot >= o.n_slots || d.index >= tables.blocks_per_slot || (d.block >= o.kv_blocks && d.block != kNoBlock)) {
      return bad_plan(fmt::format("table change [{}][{}] = {} is outside {} slots of {} entries, {} blocks", d.slot, d.index, d.block,
                                  o.n_slots, tables.blocks_per_slot, o.kv_blocks));
    }
  }
  std::uint64_t tokens = 0;
  for (std::size_t r = 0; r < step.rows.size(); ++r) {
    const DeviceRow& row = step.rows[r];
    tokens += row.n_tokens;
    const std::uint64_t end = static_cast<std::uint64_t>(row.position) + row.n_tokens;
    if (row.slot >= o.n_slots) return bad_plan(fmt::format("row {}: slot {} of {}", r, row.slot, o.n_slots));
    if (row.n_tokens == 0 || end > o.context_limit) {
      return bad_plan(
          fmt::format("row {}: positions {} to {} are not 1 or more inside the context of {}", r, row.position, end, o.context_limit));
    }
    if (config.recurrent_layers() != 0) {
      const bool begins = row.state_in == DeviceRow::kNone;
      if (row.state_out >= o.ssm_states || (begins ? row.position != 0 : row.state_in >= o.ssm_states || row.state_in == row.state_out)) {
        return bad_plan(fmt::format("row {} at position {}: recurrent state from version {} to {}, of {}", r, row.position,
                                    static_cast<std::int32_t>(row.state_in), static_cast<std::int32_t>(row.state_out), o.ssm_states));
      }
    }
    if (row.adapter_slot != 0 && !adapters.in_table(row.adapter_slot)) {
      return Error{o.max_loras == 0 ? ErrorCode::unsupported : ErrorCode::bad_plan,
                   fmt::format("row {}: adapter slot {} is not in the table of {} adapters", r, row.adapter_slot, o.max_loras)};
    }
    if (row.logits_row != DeviceRow::kNone && (!row.wants_token || row.logits_row >= o.max_logits_rows)) {
      return bad_plan(fmt::format("row {}: logits row {} of {}", r, row.logits_row, o.max_logits_rows));
    }
    if (row.source == FeedSource::Kind::feed) {
      if (row.n_tokens != 1 || row.index >= o.max_rows || row.feed_cells >= step.cell_arrays.size()) {
        return bad_plan(fmt::format("row {}: fed with {} tokens from cell {} of array {}", r, row.n_tokens, row.index, row.feed_cells));
      }
      continue;
    }
    if (static_cast<std::uint64_t>(row.index) + row.n_tokens > step.tokens.size()) {
      return bad_plan(fmt::format("row {}: ids {} to {} of {}", r, row.index, static_cast<std::uint64_t>(row.index) + row.n_tokens,
                                  step.tokens.size()));
    }
    for (const Token id : step.tokens.subspan(row.index, row.n_tokens)) {
      if (id >= config.vocab) return bad_plan(fmt::format("row {}: id {} is outside the vocabulary of {}", r, id, config.vocab));
    }
  }
  TROUPE_TRY(check_samples(step, o));
  if (tokens > o.max_step_tokens) return bad_plan(fmt::format("{} tokens in a step; the model takes {}", tokens, o.max_step_tokens));
  return static_cast<std::uint32_t>(tokens);
}

StepShape to_kernels(const StepView& step, kernels::StepRow* rows, kernels::LoraRun* runs) {
  StepShape shape;
  shape.decode = !step.rows.empty();
  std::uint32_t token = 0;
  for (std::size_t r = 0; r < step.rows.size(); ++r) {
    const DeviceRow& row = step.rows[r];
    const std::uint32_t output = row.wants_token ? shape.n_outputs++ : kernels::kNone;
    rows[r] = {row.slot,     row.position,   row.n_tokens,   row.source == FeedSource::Kind::feed ? 1u : 0u,
               row.index,    row.feed_cells, row.feed_tag,   row.mask.a,
               row.mask.b,   output,         row.logits_row, row.sampled ? 1u : 0u,
               row.state_in, row.state_out};
    if (row.logits_row != DeviceRow::kNone) shape.n_logits = std::max(shape.n_logits, row.logits_row + 1);
    shape.decode = shape.decode && row.wants_token && row.n_tokens == 1;
    if (row.adapter_slot != 0) {
      kernels::LoraRun* last = shape.n_lora_runs == 0 ? nullptr : &runs[shape.n_lora_runs - 1];
      if (last != nullptr && last->slot == row.adapter_slot && last->first_token + last->n_tokens == token) {
        last->n_tokens += row.n_tokens;
      } else {
        runs[shape.n_lora_runs++] = {token, row.n_tokens, row.adapter_slot};
      }
    }
    token += row.n_tokens;
  }
  for (const RowSample& s : step.samples) {
    if (s.logprobs_row != RowSample::kNone) shape.n_logprobs = std::max(shape.n_logprobs, s.logprobs_row + 1);
  }
  return shape;
}

}  // namespace troupe::device
