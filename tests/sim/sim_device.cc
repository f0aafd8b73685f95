#include "tests/sim/sim_device.h"

#include <algorithm>
#include <limits>

#include "device/models/sample_rows.h"

namespace troupe::sim {

namespace {
std::uint64_t mix(std::uint64_t x) {  // splitmix64's finalizer
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
}  // namespace

std::uint32_t sim_earlier(std::uint32_t position) { return position == 0 ? 0 : static_cast<std::uint32_t>(mix(position) % position); }

std::uint64_t sim_state(std::uint64_t before, std::uint32_t position, Token token, std::uint64_t adapter) {
  return mix(before ^ mix((std::uint64_t{position} << 32) | token) ^ adapter);
}

std::uint64_t sim_recur(std::uint64_t before, std::uint64_t state) { return mix(before * 3 + state); }

std::uint64_t sim_mixed(std::uint64_t state, std::uint64_t recurrent) { return mix(state + 5 * recurrent); }

std::uint64_t sim_adapter(const std::string& path) {
  std::uint64_t h = 1;
  for (const char c : path) h = mix(h ^ static_cast<unsigned char>(c));
  return h;
}

std::uint64_t sim_attend(std::uint64_t sum, std::uint32_t position, std::uint64_t state) { return sum + mix(state + position); }

Token sim_choice(std::uint64_t state, std::uint32_t vocab, RowMask mask) {
  Token id = static_cast<Token>(state % vocab);
  if (id != mask.a && id != mask.b) return id;
  for (std::uint64_t k = 1;; ++k) {
    id = static_cast<Token>(mix(state + k) % vocab);
    if (id != mask.a && id != mask.b) return id;
  }
}

// Descending in the order of sim_choice's candidates for the first few, noise below.
void sim_logits(std::uint64_t state, std::uint32_t vocab, float* out) {
  for (std::uint32_t i = 0; i < vocab; ++i) out[i] = static_cast<float>(mix(state ^ (i * 0x9E3779B97F4A7C15u)) % 1000) * 1e-3f;
  for (std::uint64_t k = 8; k > 0; --k) out[mix(state + k) % vocab] = 10.0f - static_cast<float>(k) * 0.5f;
  out[state % vocab] = 10.0f;
}

ModelInfo sim_model(const SimDeviceOptions& o) {
  ModelInfo m;
  m.name = "simulated";
  m.architecture = "sim";
  m.arithmetic_id = "sim";
  m.vocab_size = o.vocab;
  m.n_layers = 1;
  m.context_length = o.context;
  m.block_size = o.block_size;
  m.window = o.window;
  m.has_ssm_layers = o.ssm_states != 0;
  m.ssm_states = o.ssm_states;
  m.kv_blocks = o.kv_blocks;
  m.n_slots = o.n_slots;
  m.max_depth = o.max_depth;
  m.max_rows = o.max_rows;
  m.max_step_tokens = o.max_step_tokens;
  m.max_logits_rows = o.max_logits_rows;
  m.supports_device_token_feed = o.feed;
  m.supports_device_sampling = o.samples;
  m.max_sample_words = o.samples ? o.context + 8 : 0;
  m.eos_ids = {1};
  m.max_loras = o.max_loras;
  m.max_lora_rank = o.max_loras == 0 ? 0 : 8;
  TokenTable table;
  for (Token id = 0; id < o.vocab; ++id) {
    table.offsets.push_back(static_cast<std::uint32_t>(table.bytes.size()));
    table.bytes += static_cast<char>('a' + id % 26);
    table.special.push_back(id == 1 ? 1 : 0);
  }
  table.offsets.push_back(static_cast<std::uint32_t>(table.bytes.size()));
  m.tokens = Shared<TokenTable>::of(std::move(table));
  return m;
}

SimDevice::SimDevice(const SimDeviceOptions& o, std::uint32_t ring_slots)
    : options_(o),
      tables_(o.n_slots, std::vector<BlockId>((o.context + o.block_size - 1) / o.block_size, 0)),
      kv_(std::size_t{o.kv_blocks} * o.block_size, 0xDEADDEADDEADDEADu),
      recurrent_(o.ssm_states * state_words(), 0xDEADDEADDEADDEADu),
      slots_(ring_slots),
      history_(std::size_t{o.n_slots} * o.context),
      appended_(o.n_slots),
      staging_(o.spill_places, std::vector<std::uint64_t>(std::size_t{o.spill_blocks} * o.block_size)),
      marks_(o.spill_places),
      adapters_(o.max_loras + 2) {
  adapters_[0].shown = true;
  for (Slot& s : slots_) {
    s.cells.resize(o.max_rows);
    s.readback.resize(o.max_rows);
    s.logits.resize(std::size_t{o.max_logits_rows} * o.vocab);
    s.logprobs.resize(o.max_rows);
  }
}

std::vector<SlotHandles> SimDevice::ring() const {
  std::vector<SlotHandles> ring(slots_.size());
  for (std::uint32_t i = 0; i < ring.size(); ++i) ring[i].slot = i;
  for (std::size_t i = ring.size() / 2; options_.prefill_stream && i < ring.size(); ++i) ring[i].stream = kPrefillStream;
  return ring;
}

std::vector<CopyHandles> SimDevice::places() {
  std::vector<CopyHandles> places(staging_.size());
  for (std::uint32_t i = 0; i < places.size(); ++i) {
    places[i].place = i;
    places[i].staging = reinterpret_cast<std::uintptr_t>(staging_[i].data());
    places[i].blocks = options_.spill_blocks;
    places[i].block_bytes = options_.block_size * sizeof(std::uint64_t);
    places[i].order = options_.copy_stream ? 100 + i : 0;
    places[i].state_parts = options_.ssm_states == 0 ? 0 : options_.ssm_parts;
  }
  return places;
}

std::uint64_t SimDevice::recurrent_of(std::uint32_t version) const {
  const std::uint64_t* words = recurrent_.data() + version * state_words();
  std::uint64_t state = words[0];
  for (std::size_t i = 1; i < state_words(); ++i)
    if (words[i] != mix(words[0] + i)) state = mix(state ^ words[i]);
  return state;
}

void SimDevice::keep_recurrent(std::uint32_t version, std::uint64_t state) {
  std::uint64_t* words = recurrent_.data() + version * state_words();
  words[0] = state;
  for (std::size_t i = 1; i < state_words(); ++i) words[i] = mix(state + i);
}

std::uint64_t& SimDevice::kv_at(std::uint32_t slot, std::uint32_t position) {
  return kv_[std::size_t{tables_[slot][position / options_.block_size]} * options_.block_size + position % options_.block_size];
}

bool SimDevice::has_blocks(std::uint32_t slot, std::uint32_t begin, std::uint32_t end) const {
  const std::uint32_t first = options_.window == 0 ? 0 : begin - std::min(begin, options_.window - 1);
  for (std::uint32_t b = first / options_.block_size; b * options_.block_size < end; ++b)
    if (tables_[slot][b] == kNoBlock) return false;
  return true;
}

void SimDevice::keep_id(std::uint32_t slot, std::uint32_t position, Token id) {
  if (options_.append_history && position > 0) position = std::min<std::uint32_t>(appended_[slot] + 1, options_.context - 1);
  appended_[slot] = position;
  history_[std::size_t{slot} * options_.context + position] = id;
}

void SimDevice::sample_row(const LaunchedStep& step, const RowSample& sample, std::uint64_t state) {
  const DeviceRow& row = step.rows[sample.row];
  Slot& slot = slots_[step.slot.slot];
  std::vector<float> logits(options_.vocab);
  sim_logits(state, options_.vocab, logits.data());
  kernels::StepRow r;
  r.slot = row.slot;
  r.position = row.position;
  r.n_tokens = row.n_tokens;
  r.output = 0;
  kernels::SampleRow s = device::to_kernels(sample);
  s.row = 0;
  s.n_history = 0;  // run_row has kept it
  kernels::Cell cell{0, kernels::Status::ok, step.ticket.tag()};
  kernels::RowReadback readback;
  kernels::SampleArgs args;
  args.rows = &r, args.samples = &s, args.n = 1;
  args.logits = logits.data(), args.vocab = options_.vocab, args.tag = step.ticket.tag();
  args.biases = reinterpret_cast<const kernels::IdBias*>(step.biases.data()), args.ids = step.tokens.data();
  args.history = history_.data(), args.history_stride = options_.context;
  args.cells = &cell, args.readback = &readback;
  args.logprobs = reinterpret_cast<kernels::RowLogprobs*>(slot.logprobs.data());
  sample_.run(args);
  slot.cells[sample.row].id = cell.id;
  slot.cells[sample.row].status = static_cast<CellStatus>(cell.status);
}

void SimDevice::run_row(const LaunchedStep& step, std::uint32_t i) {
  const DeviceRow& row = step.rows[i];
  Slot& slot = slots_[step.slot.slot];
  Cell& cell = slot.cells[i];
  cell = {0, CellStatus::ok, step.ticket.tag()};
  Token input = 0;
  if (row.source == FeedSource::Kind::feed) {
    const Cell& from = slots_[row.feed_cells].cells[row.index];
    if (from.tag != row.feed_tag)
      cell.status = CellStatus::stale_feed;
    else if (from.status != CellStatus::ok)
      cell.status = CellStatus::poisoned;
    else
      input = from.id;
  }
  if (!adapters_[row.adapter_slot].shown && violation_.empty())
    violation_ = "R9: " + label(step.ticket) + " row " + std::to_string(i) + " runs under adapter slot " +
                 std::to_string(row.adapter_slot) + ", which is not in the table";
  const RowSample* sample = nullptr;
  for (const RowSample& s : step.samples) sample = s.row == i ? &s : sample;
  if ((sample != nullptr) != row.sampled && violation_.empty())
    violation_ = label(step.ticket) + " row " + std::to_string(i) + " is to be sampled, and nothing says how";
  for (std::uint32_t p = 0; sample != nullptr && p < sample->n_history; ++p) keep_id(row.slot, p, step.tokens[sample->history_begin + p]);
  std::uint64_t state = 0;
  if (!has_blocks(row.slot, row.position, row.position + row.n_tokens)) {
    ++faults_.missing;
    if (cell.status == CellStatus::ok) cell.status = CellStatus::poisoned;
    slot.readback[i] = {input, cell.id, cell.status, step.ticket.tag()};
    return;
  }
  std::uint64_t recurrent = row.state_in < options_.ssm_states ? recurrent_of(row.state_in) : 0;
  for (std::uint32_t k = 0; k < row.n_tokens; ++k) {
    if (row.source == FeedSource::Kind::host) input = step.tokens[row.index + k];
    const std::uint32_t position = row.position + k;
    std::uint64_t before = position == 0 ? 0 : kv_at(row.slot, position - 1);
    if (options_.window == 0 && position > 0) before = sim_attend(before, sim_earlier(position), kv_at(row.slot, sim_earlier(position)));
    state = sim_state(before, position, input, adapters_[row.adapter_slot].content);
    kv_at(row.slot, position) = state;
    keep_id(row.slot, position, input);
    recurrent = sim_recur(recurrent, state);
  }
  if (options_.window != 0) {
    const std::uint32_t last = row.position + row.n_tokens - 1;
    std::uint64_t sum = 0;
    for (std::uint32_t p = last - std::min(last, options_.window - 1); p <= last; ++p) sum = sim_attend(sum, p, kv_at(row.slot, p));
    state = sum;
  }
  if (options_.ssm_states != 0) {
    if (row.state_out < options_.ssm_states)
      keep_recurrent(row.state_out, recurrent);
    else if (violation_.empty())
      violation_ = label(step.ticket) + " row " + std::to_string(i) + " has no version to write its state to";
    state = sim_mixed(state, recurrent);
  }
  if (options_.nan_rows.count({step.ticket.step, i}) > 0 && cell.status == CellStatus::ok)
    cell.status = CellStatus::no_token, ++faults_.nan;
  if (sample != nullptr && cell.status == CellStatus::ok)
    sample_row(step, *sample, state);
  else if (row.wants_token && cell.status == CellStatus::ok)
    cell.id = sim_choice(state, options_.vocab, row.mask);
  if (row.logits_row != DeviceRow::kNone) sim_logits(state, options_.vocab, &slot.logits[std::size_t{row.logits_row} * options_.vocab]);
  slot.readback[i] = {input, cell.id, cell.status, step.ticket.tag()};
}

Error SimDevice::load(const LoadAdapter& m) {
  if (m.path.starts_with("bad")) return {ErrorCode::bad_file, m.path + " is no adapter"};
  Adapter& a = adapters_[m.slot];
  if (a.shown && violation_.empty()) violation_ = "R9: adapter slot " + std::to_string(m.slot) + " was written while the table shows it";
  a.content = sim_adapter(m.path);
  return {};
}

Error SimDevice::change(const ChangeTable& m) {
  if (m.show.slot != 0) adapters_[m.show.slot].shown = true;
  if (m.hide.slot != 0) adapters_[m.hide.slot] = {};
  return {};
}

DeviceError SimDevice::enqueue(const Enqueue& m) {
  const std::uint64_t step = m.step->ticket.step;
  const bool half = options_.half_enqueued.count(step) > 0;
  std::deque<Work>& to = m.step->slot.stream == kPrefillStream ? prefills_ : queue_;
  if (!half && options_.enqueue_errors.count(step) == 0) return to.push_back({.step = m.step}), DeviceError{};
  if (half) to.push_back({.step = m.step});
  ++(half ? faults_.half : faults_.enqueue);
  return {DeviceError::Phase::forward, ErrorCode::device_failed, 0, 0, "the step could not be enqueued (injected)"};
}

DeviceError SimDevice::enqueue(const CopyBlocks& m) {
  const std::uint64_t copy = m.copy.step;
  const bool refused = options_.copy_refused.count(copy) > 0, half = options_.copy_half.count(copy) > 0;
  Work work{.copy = m};
  if (m.after != 0) work.marks_before = marks_[m.handles.place].recorded;  // as CUDA: of what is recorded by now
  if (!refused) (options_.copy_stream ? copies_ : queue_).push_back(std::move(work));
  if (!refused && !half) return {};
  ++faults_.copy;
  return {half ? DeviceError::Phase::forward : DeviceError::Phase::launch, ErrorCode::device_failed, 0, 0,
          "the copy could not be enqueued (injected)"};
}

std::optional<EventDone> SimDevice::run_copy(const CopyBlocks& m) {
  EventDone done{{}, m.copy, static_cast<std::uint32_t>(slots_.size()) + m.handles.place, {}};
  if (lost_) {
    done.error = {DeviceError::Phase::readback, ErrorCode::device_lost, 0, 0, "the device is gone (injected)"};
    return done;
  }
  const bool fails = options_.copy_errors.count(m.copy.step) > 0;
  const std::size_t all = m.blocks.size() + m.n_parts, n = fails ? all / 2 : all;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint64_t* staged = staging_[m.handles.place].data() + i * options_.block_size;
    std::uint64_t* block = m.n_parts != 0 ? recurrent_.data() + m.state * state_words() + (m.part + i) * options_.block_size
                                          : kv_.data() + std::size_t{m.blocks[i]} * options_.block_size;
    m.out ? std::copy(block, block + options_.block_size, staged) : std::copy(staged, staged + options_.block_size, block);
  }
  if (options_.copy_half.count(m.copy.step) > 0) return std::nullopt;
  if (fails) {
    ++faults_.copy;
    done.error = {DeviceError::Phase::readback, ErrorCode::device_failed, 0, 0, "the copy failed half-way (injected)"};
  }
  return done;
}

Error SimDevice::record(const RecordEvent& m) {
  if (options_.mark_errors.count(m.mark.step) > 0) {
    ++faults_.mark;
    return {ErrorCode::device_failed, "the event could not be recorded (injected)"};
  }
  ++marks_[m.place].recorded;
  queue_.push_back({.mark = m.place});
  return {};
}

std::optional<EventDone> SimDevice::run_head(std::uint64_t pick) {
  const bool steps = runnable(queue_), prefills = runnable(prefills_);
  std::deque<Work>& from = copies_runnable() && (!(steps || prefills) || pick % 2 == 1) ? copies_
                           : prefills && (!steps || (pick >> 1) % 2 == 1)               ? prefills_
                                                                                        : queue_;
  const Work work = std::move(from.front());
  from.pop_front();
  if (work.mark) return ++marks_[*work.mark].complete, std::nullopt;
  if (!work.step) return run_copy(work.copy);
  const Shared<LaunchedStep>& step = work.step;
  const std::uint64_t number = step->ticket.step;
  EventDone done{{}, step->ticket, step->slot.slot, {}};
  if (options_.lose_at != 0 && number >= options_.lose_at) {
    ++faults_.lost;
    lost_ = true;
    done.error = {DeviceError::Phase::forward, ErrorCode::device_lost, 0, 0, "the device is gone (injected)"};
    return done;
  }
  if (options_.fail_steps.count(number) > 0) {
    ++faults_.failed_early;
    done.error = {DeviceError::Phase::forward, ErrorCode::device_failed, 0, 0, "the step failed (injected)"};
    return done;
  }
  const bool half = options_.half_enqueued.count(number) > 0, late = options_.fail_late.count(number) > 0;
  for (const TableDelta& d : step->deltas) tables_[d.slot][d.index] = d.block;
  const std::size_t n = half || late ? step->rows.size() / 2 : step->rows.size();
  for (std::uint32_t i = 0; i < n; ++i) run_row(*step, i);
  if (half && !marks_end(*step)) return std::nullopt;
  if (late) {
    ++faults_.failed_late;
    done.error = {DeviceError::Phase::forward, ErrorCode::device_failed, 0, 0, "the step failed half-way (injected)"};
  } else if (options_.event_errors.count(number) > 0) {
    ++faults_.event;
    done.error = {DeviceError::Phase::readback, ErrorCode::device_failed, 0, 0, "the event could not be asked (injected)"};
  }
  return done;
}

StepResult SimDevice::read(const ReadSlot& m) {
  StepResult r;
  r.ticket = m.ticket;
  r.error = m.error;
  if (r.ok() && options_.readback_errors.count(m.ticket.step) > 0) {
    ++faults_.readback;
    r.error = {DeviceError::Phase::readback, ErrorCode::device_failed, 0, 0, "the readback failed (injected)"};
  }
  if (!r.ok()) return r;
  const Slot& slot = slots_[m.ring_slot];
  r.rows.assign(slot.readback.begin(), slot.readback.begin() + m.n_rows);
  for (const Readback& rb : r.rows) {
    if (rb.tag == m.ticket.tag()) continue;
    r.rows.clear();
    r.error = {DeviceError::Phase::readback, ErrorCode::internal, 0, 0, "the ring slot was overwritten before it was read (R4)"};
    return r;
  }
  for (std::uint32_t k = 0; k < m.n_logprobs; ++k) {
    const ReadLogprobs& from = slot.logprobs[k];
    r.logprobs.push_back({from.chosen, static_cast<std::uint32_t>(r.best.size()), from.n_best});
    for (std::uint32_t b = 0; b < from.n_best; ++b) r.best.push_back({from.ids[b], from.best[b]});
  }
  r.logits = {slot.logits.data(), m.n_logits, options_.vocab};
  return r;
}

}  // namespace troupe::sim
