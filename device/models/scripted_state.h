// The inside of the scripted model: what its steps work in, and what they do. Included by scripted.cc only.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/host/copy_queue.h"
#include "device/models/scripted.h"

namespace troupe::device {

ModelInfo scripted_info(const ScriptedOptions& options);

namespace scripted {

inline TimeNs clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Cell {
  Token id;
  std::uint32_t tag;
  CellStatus status;
};

// What decode leaves for argmax: the row's logits, in place of a float per id.
struct RowOutput {
  std::uint64_t choice;
  Token input;
  CellStatus status;
};

// Memory of the driver, given back when it goes.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (ptr_ != 0) (void)driver_->free_device(ptr_, bytes_);
  }
  Result<void> alloc(Driver& driver, std::size_t bytes) {
    TROUPE_TRY(ptr_, driver.alloc_device(bytes));
    driver_ = &driver;
    bytes_ = bytes;
    return success();
  }
  DevicePtr ptr() const { return ptr_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(ptr_);
  }

 private:
  Driver* driver_ = nullptr;
  DevicePtr ptr_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace scripted

struct ScriptedModel::State {
  using Buffer = scripted::Buffer;
  using Cell = scripted::Cell;
  using RowOutput = scripted::RowOutput;
  static TimeNs clock_ns() { return scripted::clock_ns(); }

  struct Lane;
  // A step between its enqueueing and its end. `phase` is set by the enqueueing thread (free -> queued) and by the
  // stream's (queued -> decoded -> free).
  struct Job {
    enum Phase : std::uint32_t { free, queued, decoded };
    std::atomic<std::uint32_t> phase{free};
    bool orphan = false;  // its argmax could not be enqueued: free once it is decoded
    Lane* lane = nullptr;
    StepView step;
    TimeNs end = 0;  // the programmed one
    bool failed = false;
    ScriptedTimes* times = nullptr;
  };

  // A stream, and whether a function of ours runs on it.
  struct Place {
    Stream stream = 0;
    std::atomic<bool> running{false};
  };
  // What the steps of one stream work in; its order keeps them apart.
  struct Lane : Place {
    State* state = nullptr;
    Buffer outputs;   // RowOutput [max_rows]
    Buffer readback;  // Readback [max_rows]
    Buffer logits;    // float [max_logits_rows][vocab]
    std::vector<Job> jobs;
    std::uint64_t settled = 0;

    Result<void> init(State& of) {
      state = &of;
      const ScriptedOptions& o = of.options;
      jobs = std::vector<Job>(o.max_depth + 1);
      for (Job& job : jobs) job.lane = this;
      TROUPE_TRY(outputs.alloc(of.driver, o.max_rows * sizeof(RowOutput)));
      TROUPE_TRY(readback.alloc(of.driver, o.max_rows * sizeof(Readback)));
      return logits.alloc(of.driver, std::size_t{o.max_logits_rows} * o.vocab * sizeof(float));
    }
    Job* take_job() {
      for (Job& job : jobs) {
        const std::uint32_t phase = job.phase.load(std::memory_order_acquire);
        if (phase == Job::free || (phase == Job::decoded && job.orphan)) return &job;
      }
      return nullptr;
    }
  };

  State(Driver& d, ScriptedOptions o) : driver(d), options(std::move(o)), info(scripted_info(options)) {
    log.resize(options.log_steps);
    blocks_per_slot = (options.context + options.block_size - 1) / options.block_size;
  }

  Driver& driver;
  const ScriptedOptions options;
  const ModelInfo info;
  std::uint32_t blocks_per_slot = 0;
  Buffer kv;         // uint64 [kv_blocks][block_size]
  Buffer tables;     // BlockId + 1 [n_slots][blocks_per_slot]; 0 = no block
  Event passed = 0;  // of the destructor
  Lane compute, prefill;
  std::unique_ptr<Aside> aside;  // the feed of `prefill`
  Place copying;                 // which may be on the compute stream
  std::vector<ScriptedTimes> log;
  std::size_t logged = 0;
  std::atomic<bool> released{false};
  CopyQueue<State> copies{*this};

  const ScriptedFault* fault(ScriptedFault::Kind kind, std::uint64_t step, std::uint32_t row = 0) const {
    for (const ScriptedFault& f : options.faults) {
      if (f.kind == kind && f.step == step && (kind != ScriptedFault::Kind::nan_row || f.row == row)) return &f;
    }
    return nullptr;
  }

  // Under `copying`, as the steps' functions are under their lanes. A block may be written meanwhile, behind the positions that the
  // copy is for.
  void read_block(BlockId block, std::byte* to) { copy_block(to, kv_block(block)); }
  void write_block(BlockId block, std::byte* from) { copy_block(kv_block(block), from); }
  std::byte* kv_block(BlockId block) const {
    return reinterpret_cast<std::byte*>(kv.as<std::uint64_t>() + std::size_t{block} * options.block_size);
  }
  std::size_t kv_block_bytes() const { return options.block_size * sizeof(std::uint64_t); }
  void copy_block(std::byte* to, std::byte* from) {
    copying.running.store(true, std::memory_order_relaxed);
    auto* const out = reinterpret_cast<std::uint64_t*>(to);
    auto* const in = reinterpret_cast<std::uint64_t*>(from);
    for (std::uint32_t i = 0; i < options.block_size; ++i) {
      std::atomic_ref(out[i]).store(std::atomic_ref(in[i]).load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    copying.running.store(false, std::memory_order_release);
  }

  std::uint64_t* at(std::uint32_t slot, std::uint32_t position) const {
    const std::uint32_t block = tables.as<std::uint32_t>()[std::size_t{slot} * blocks_per_slot + position / options.block_size];
    if (block == 0) return nullptr;
    return kv.as<std::uint64_t>() + std::size_t{block - 1} * options.block_size + position % options.block_size;
  }

  // The terms of positions 0 (or the window's first) … last, or nothing if a block is missing.
  std::optional<std::uint64_t> sum_of(std::uint32_t slot, std::uint32_t last) const {
    std::uint64_t sum = 0;
    std::uint32_t begin = options.window == 0 ? 0 : last - std::min(last, options.window - 1);
    while (begin <= last) {
      const std::uint64_t* state = at(slot, begin);
      if (state == nullptr) return std::nullopt;
      const std::uint32_t n = std::min(options.block_size - begin % options.block_size, last - begin + 1);
      for (std::uint32_t i = 0; i < n; ++i) sum += scripted_term(state[i], begin + i);
      begin += n;
    }
    return sum;
  }

  // False: the block table lacks a block.
  bool decode_row(const StepView& step, const DeviceRow& row, RowOutput& out) const {
    out.status = CellStatus::ok;
    Token fed = 0;
    if (row.source == FeedSource::Kind::feed) {
      const Cell& cell = reinterpret_cast<const Cell*>(step.cell_arrays[row.feed_cells])[row.index];
      if (cell.tag != row.feed_tag) {
        out.status = CellStatus::stale_feed;
      } else if (cell.status != CellStatus::ok) {
        out.status = CellStatus::poisoned;
      } else {
        fed = cell.id;
      }
    }
    std::uint64_t state = scripted_start(options);
    if (row.position > 0) {
      const std::uint64_t* before = at(row.slot, row.position - 1);
      if (before == nullptr) return false;
      state = *before;
    }
    for (std::uint32_t i = 0; i < row.n_tokens; ++i) {
      out.input = row.source == FeedSource::Kind::feed ? fed : step.tokens[row.index + i];
      state = scripted_state(state, out.input, row.adapter_slot);
      std::uint64_t* to = at(row.slot, row.position + i);
      if (to == nullptr) return false;
      std::atomic_ref(*to).store(state, std::memory_order_relaxed);
    }
    std::uint64_t sum = 0;
    if (options.attention && row.wants_token) {
      const std::optional<std::uint64_t> all = sum_of(row.slot, row.position + row.n_tokens - 1);
      if (!all) return false;
      sum = *all;
    }
    out.choice = scripted_choice(sum, state);
    return true;
  }

  ErrorCode decode(Job& job) {
    const StepView& step = job.step;
    const TimeNs start = clock_ns();
    if (job.times != nullptr) job.times->started = start;
    TimeNs tokens = 0;
    for (const DeviceRow& row : step.rows) tokens += row.n_tokens;
    const TimeNs length = options.step_ns + options.row_ns * static_cast<TimeNs>(step.rows.size()) + options.token_ns * tokens;
    job.end = length == 0 ? 0 : start + length;
    if (const ScriptedFault* f = fault(ScriptedFault::Kind::fail_step, step.ticket.step)) {
      job.failed = true;
      return f->code;
    }
    for (const TableDelta& d : step.deltas) {
      tables.as<std::uint32_t>()[std::size_t{d.slot} * blocks_per_slot + d.index] = d.block + 1;
    }
    for (std::size_t i = 0; i < step.rows.size(); ++i) {
      if (!decode_row(step, step.rows[i], job.lane->outputs.as<RowOutput>()[i])) {
        job.failed = true;
        return ErrorCode::bad_plan;
      }
    }
    return ErrorCode::none;
  }

  void argmax(Job& job) {
    const StepView& step = job.step;
    auto* cells = reinterpret_cast<Cell*>(step.cells);
    for (std::uint32_t i = 0; !job.failed && i < step.rows.size(); ++i) {
      const DeviceRow& row = step.rows[i];
      const RowOutput& out = job.lane->outputs.as<RowOutput>()[i];
      Readback& back = job.lane->readback.as<Readback>()[i];
      back = {.input = out.input, .id = 0, .status = out.status, .tag = step.tag};
      const bool nan = fault(ScriptedFault::Kind::nan_row, step.ticket.step, i) != nullptr;
      if (row.wants_token && out.status == CellStatus::ok) {
        const auto best = scripted_best(options, out.choice, out.input);
        const std::optional<Token> id = nan ? std::nullopt : scripted_pick(best, row.mask);
        back.id = id.value_or(0);
        if (!id) back.status = CellStatus::no_token;
      }
      cells[i] = {.id = back.id, .tag = step.tag, .status = back.status};
      if (row.logits_row != DeviceRow::kNone) {
        const std::span<float> to(job.lane->logits.as<float>() + std::size_t{row.logits_row} * options.vocab, options.vocab);
        if (nan) {
          std::fill(to.begin(), to.end(), std::numeric_limits<float>::quiet_NaN());
        } else {
          scripted_logits(options, out.choice, out.input, to);
        }
      }
    }
    if (fault(ScriptedFault::Kind::hang_step, step.ticket.step) != nullptr) released.wait(false, std::memory_order_acquire);
    wait_until(job.end);
    if (job.times != nullptr) job.times->done = clock_ns();
  }

  void wait_until(TimeNs end) const {
    if (end == 0) return;
    const TimeNs left = end - clock_ns() - options.spin_ns;
    if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left));
    while (clock_ns() < end) {
    }
  }

  static ErrorCode run_decode(void* context) {
    Job& job = *static_cast<Job*>(context);
    Lane& lane = *job.lane;
    lane.running.store(true, std::memory_order_relaxed);
    const ErrorCode code = lane.state->decode(job);
    job.phase.store(Job::decoded, std::memory_order_release);
    lane.running.store(false, std::memory_order_release);
    return code;
  }

  static ErrorCode run_argmax(void* context) {
    Job& job = *static_cast<Job*>(context);
    Lane& lane = *job.lane;
    lane.running.store(true, std::memory_order_relaxed);
    lane.state->argmax(job);
    job.phase.store(Job::free, std::memory_order_release);
    lane.running.store(false, std::memory_order_release);
    return ErrorCode::none;
  }

  // Waits until the streams have passed everything that was enqueued. A stream that is gone had nothing left; on a lost
  // device nothing but a function that runs now still touches this.
  void quiesce() {
    released.store(true, std::memory_order_release);
    released.notify_all();
    for (Place* place : std::initializer_list<Place*>{&compute, &prefill, &copying}) {
      while (place->stream != 0) {
        const auto recorded = driver.record_event(passed, place->stream);
        if (!recorded.has_error()) (void)driver.event_synchronize(passed);
        if (!recorded.has_error() || recorded.error().code != ErrorCode::overloaded) break;
        std::this_thread::yield();
      }
      while (place->running.load(std::memory_order_acquire)) std::this_thread::yield();
    }
    (void)driver.destroy_event(passed);
  }

  Result<void> check(const StepView& step) const {
    const auto bad = [](std::string what) { return Error{ErrorCode::bad_plan, "scripted model: " + std::move(what)}; };
    if (step.rows.size() > options.max_rows) return bad("more rows than max_rows");
    for (const TableDelta& d : step.deltas) {
      if (d.slot >= options.n_slots || d.index >= blocks_per_slot || (d.block >= options.kv_blocks && d.block != kNoBlock))
        return bad("a table delta is out of range");
    }
    std::uint64_t tokens = 0;
    for (std::size_t i = 0; i < step.rows.size(); ++i) {
      const DeviceRow& row = step.rows[i];
      const auto wrong = [&](const char* what) { return bad("row " + std::to_string(i) + ": " + what); };
      tokens += row.n_tokens;
      if (row.slot >= options.n_slots) return wrong("no such slot");
      if (row.n_tokens == 0) return wrong("no tokens");
      if (std::uint64_t{row.position} + row.n_tokens > options.context) return wrong("positions past the context length");
      if (row.logits_row != DeviceRow::kNone && row.logits_row >= options.max_logits_rows) return wrong("no such logits row");
      if (row.source == FeedSource::Kind::feed) {
        if (row.n_tokens != 1) return wrong("a fed row has one token");
        if (row.feed_cells >= step.cell_arrays.size() || row.index >= options.max_rows) return wrong("no such feed cell");
        continue;
      }
      if (std::uint64_t{row.index} + row.n_tokens > step.tokens.size()) return wrong("ids past the end of the step's tokens");
      for (const Token id : step.tokens.subspan(row.index, row.n_tokens)) {
        if (id >= options.vocab) return wrong("an id outside the vocabulary");
      }
    }
    if (tokens > options.max_step_tokens) return bad("more tokens than max_step_tokens");
    return success();
  }

  Result<DevicePtr> enqueue(Lane& lane, const StepView& step, Stream stream) {
    TROUPE_TRY(check(step));
    Job* job = lane.take_job();
    if (job == nullptr) {
      return Error{ErrorCode::overloaded, "scripted model: more steps are enqueued than max_depth + 1; await one first"};
    }
    job->orphan = false;
    job->failed = false;
    job->step = step;
    job->times = nullptr;
    if (&lane == &compute && logged < log.size()) {
      job->times = &log[logged];
      *job->times = {.step = step.ticket.step, .enqueued = clock_ns()};
    }
    job->phase.store(Job::queued, std::memory_order_relaxed);
    lane.stream = stream;
    if (auto done = driver.enqueue_host_function({&State::run_decode, job}, stream); done.has_error()) {
      job->phase.store(Job::free, std::memory_order_relaxed);
      return done.error();
    }
    if (job->times != nullptr) ++logged;
    return reinterpret_cast<DevicePtr>(job);
  }

  Result<void> enqueue_argmax(Lane& lane, DevicePtr from, const StepView& step, ReadbackTarget dst, Event event, Stream stream) {
    auto* job = reinterpret_cast<Job*>(from);
    if (job < lane.jobs.data() || job >= lane.jobs.data() + lane.jobs.size() || job->step.ticket != step.ticket) {
      return Error{ErrorCode::bad_plan, "scripted model: argmax_batch_to_feed of a step that decode_batch_fed did not return"};
    }
    if (auto done = driver.enqueue_host_function({&State::run_argmax, job}, stream); done.has_error()) {
      job->orphan = true;
      return done.error();
    }
    std::uint32_t n_logits = 0;
    for (const DeviceRow& row : step.rows) {
      if (row.logits_row != DeviceRow::kNone) n_logits = std::max(n_logits, row.logits_row + 1);
    }
    TROUPE_TRY(driver.copy_d2h_async(dst.rows, lane.readback.ptr(), step.rows.size() * sizeof(Readback), stream));
    TROUPE_TRY(driver.copy_d2h_async(dst.logits, lane.logits.ptr(), std::size_t{n_logits} * options.vocab * sizeof(float), stream));
    return driver.record_event(event, stream);
  }
};

// The feed of the prefill stream.
class ScriptedModel::Aside final : public ModelDeviceFeed {
 public:
  explicit Aside(State& state) : s_(state) {}
  const ModelInfo& info() const override { return s_.info; }
  std::size_t cells_bytes() const override { return s_.options.max_rows * sizeof(scripted::Cell); }
  bool supports_device_token_feed() const override { return true; }
  Result<DevicePtr> decode_batch_fed(const StepView& step, Stream stream) override { return s_.enqueue(s_.prefill, step, stream); }
  Result<void> argmax_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) override {
    return s_.enqueue_argmax(s_.prefill, logits, step, dst, event, stream);
  }
  void fed_step_settled(Ticket) override { ++s_.prefill.settled; }

 private:
  State& s_;
};

}  // namespace troupe::device
