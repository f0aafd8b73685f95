#include "device/models/scripted.h"

#include <string>
#include <utility>

#include "device/models/scripted_state.h"

namespace troupe::device {
namespace {

Shared<TokenTable> token_table(const ScriptedOptions& options) {
  TokenTable table;
  table.offsets.push_back(0);
  for (std::uint32_t id = 0; id < options.vocab; ++id) {
    table.bytes += options.texts.empty() ? "t" + std::to_string(id) + " " : options.texts[id];
    table.offsets.push_back(static_cast<std::uint32_t>(table.bytes.size()));
    table.special.push_back(id == options.eos() ? 1 : 0);
  }
  return Shared<TokenTable>::of(std::move(table));
}

}  // namespace

ModelInfo scripted_info(const ScriptedOptions& options) {
  ModelInfo info;
  info.name = "Scripted";
  info.architecture = "scripted";
  info.arithmetic_id = "host/scripted/" + std::to_string(options.seed) + (options.attention ? "/attention" : "") +
                       (options.window != 0 ? "/window" + std::to_string(options.window) : "");
  info.vocab_size = options.vocab;
  info.n_layers = 1;
  info.context_length = options.context;
  info.block_size = options.block_size;
  info.window = options.window;
  info.kv_blocks = options.kv_blocks;
  info.n_slots = options.n_slots;
  info.max_depth = options.max_depth;
  info.max_rows = options.max_rows;
  info.max_step_tokens = options.max_step_tokens;
  info.max_logits_rows = options.max_logits_rows;
  info.streams = options.prefill_stream ? 3 : 1;
  info.supports_device_token_feed = true;
  info.eos_ids = {options.eos()};
  info.tokens = token_table(options);
  return info;
}

ScriptedModel::ScriptedModel(std::unique_ptr<State> state) : s_(std::move(state)) {}

ScriptedModel::~ScriptedModel() { s_->quiesce(); }

Result<std::unique_ptr<ScriptedModel>> ScriptedModel::load(Driver& driver, ScriptedOptions options) {
  TROUPE_TRY(validate(options));
  auto state = std::make_unique<State>(driver, std::move(options));
  const ScriptedOptions& o = state->options;
  TROUPE_TRY(state->kv.alloc(driver, std::size_t{o.kv_blocks} * o.block_size * sizeof(std::uint64_t)));
  TROUPE_TRY(state->tables.alloc(driver, std::size_t{o.n_slots} * state->blocks_per_slot * sizeof(std::uint32_t)));
  TROUPE_TRY(state->compute.init(*state));
  if (o.prefill_stream) {
    TROUPE_TRY(state->prefill.init(*state));
    state->aside = std::make_unique<Aside>(*state);
  }
  TROUPE_TRY(state->passed, driver.create_event());
  return std::unique_ptr<ScriptedModel>(new ScriptedModel(std::move(state)));
}

const ModelInfo& ScriptedModel::info() const { return s_->info; }
std::size_t ScriptedModel::cells_bytes() const { return s_->options.max_rows * sizeof(scripted::Cell); }
const ScriptedOptions& ScriptedModel::options() const { return s_->options; }
std::uint64_t ScriptedModel::settled() const { return s_->compute.settled + s_->prefill.settled; }
std::span<const ScriptedTimes> ScriptedModel::times() const { return std::span(s_->log).first(s_->logged); }

void ScriptedModel::release() {
  s_->released.store(true, std::memory_order_release);
  s_->released.notify_all();
}

std::size_t ScriptedModel::kv_block_bytes() const { return s_->kv_block_bytes(); }

Result<void> ScriptedModel::copy_blocks_out(std::span<const BlockId> blocks, void* to, Stream stream) {
  s_->copying.stream = stream;
  return s_->copies.enqueue(blocks, to, s_->kv_block_bytes(), s_->options.kv_blocks, &State::read_block, s_->driver, stream);
}

Result<void> ScriptedModel::copy_blocks_in(std::span<const BlockId> blocks, const void* from, Stream stream) {
  s_->copying.stream = stream;
  return s_->copies.enqueue(blocks, const_cast<void*>(from), s_->kv_block_bytes(), s_->options.kv_blocks, &State::write_block, s_->driver,
                            stream);
}

void ScriptedModel::fed_step_settled(Ticket) { ++s_->compute.settled; }
ModelDeviceFeed* ScriptedModel::prefill_feed() { return s_->aside.get(); }

Result<DevicePtr> ScriptedModel::decode_batch_fed(const StepView& step, Stream stream) { return s_->enqueue(s_->compute, step, stream); }

Result<void> ScriptedModel::argmax_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) {
  return s_->enqueue_argmax(s_->compute, logits, step, dst, event, stream);
}

}  // namespace troupe::device
