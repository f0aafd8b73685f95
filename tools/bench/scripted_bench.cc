#include "tools/bench/scripted_bench.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "actors/runtime.h"
#include "actors/scheduler/core.h"
#include "device/host/driver.h"
#include "device/models/scripted.h"
#include "tools/bench/alloc_count.h"
#include "tools/bench/direct_io.h"

namespace troupe::tools {
namespace {

constexpr std::uint32_t kPrompt = 8;
constexpr std::uint32_t kBlock = 16;

device::ScriptedOptions scripted_options(const ScriptedRun& run) {
  device::ScriptedOptions out;
  out.context = kPrompt + run.steps + kBlock;
  out.block_size = kBlock;
  out.kv_blocks = run.rows * (out.context / kBlock + 2);
  out.n_slots = 2 * run.rows;
  out.max_rows = run.rows;
  out.max_step_tokens = std::max(512u, run.rows * 2);
  out.max_depth = run.depth;
  out.attention = false;
  out.step_ns = run.step.count();
  out.log_steps = run.steps + 1024;
  return out;
}

Request make_request(const ScriptedRun& run, std::uint64_t client) {
  Request request;
  request.client = client;
  for (std::uint32_t i = 0; i < kPrompt; ++i) request.prompt.push_back(static_cast<Token>((client + i) % 100));
  request.stop.max_tokens = run.steps;
  request.stop.ignore_eos = true;
  return request;
}

ScriptedFigures evaluate(const ScriptedRun& run, std::span<const device::ScriptedTimes> times) {
  const std::size_t first = times.size() / 10, last = times.size() - times.size() / 10;
  ScriptedFigures out;
  TimeNs idle = 0;
  for (std::size_t i = first; i + run.depth < last; ++i) {
    out.loop_us.push_back(static_cast<double>(times[i + run.depth].enqueued - times[i].done) / 1000.0);
    idle += times[i + 1].started - times[i].done;
  }
  std::sort(out.loop_us.begin(), out.loop_us.end());
  out.idle = static_cast<double>(idle) / static_cast<double>(times[last - run.depth].started - times[first].done);
  return out;
}

// Lets this thread run on one CPU only, for as long as it lives.
class PinnedThread {
 public:
  explicit PinnedThread(int cpu) {
    if (cpu < 0) return;
    pinned_ = ::sched_getaffinity(0, sizeof before_, &before_) == 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(cpu), &one);
    (void)::sched_setaffinity(0, sizeof one, &one);
  }
  ~PinnedThread() {
    if (pinned_) (void)::sched_setaffinity(0, sizeof before_, &before_);
  }
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

 private:
  cpu_set_t before_{};
  bool pinned_ = false;
};

// Moments of the steady part, told by the first request's tokens. Allocations are counted between the inner two: the
// figures that are asked for at the outer two cost some themselves.
class Marks {
 public:
  explicit Marks(std::uint32_t steps) : first_(steps / 5), begin_at_(3 * steps / 10), end_at_(7 * steps / 10), last_(steps - steps / 5) {}
  // Whether the figures are to be asked for now.
  bool on_token(std::uint32_t index) {
    if (index == begin_at_) begin_ = alloc_count();
    if (index == end_at_) end_ = alloc_count();
    return index == first_ || index == last_;
  }
  void evaluate(ScriptedFigures& out) const {
    const double steps = end_at_ - begin_at_;
    out.allocs_per_step = static_cast<double>(end_.ours - begin_.ours) / steps;
    out.caf_allocs_per_step = static_cast<double>(end_.caf - begin_.caf) / steps;
  }

 private:
  std::uint32_t first_, begin_at_, end_at_, last_;
  AllocCount begin_, end_;
};

// What the callbacks tell the waiting thread.
struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint32_t marks = 0;
  std::uint32_t ended = 0;
  std::uint32_t failed = 0;

  void wait_for_mark(std::uint32_t n) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return marks >= n || failed != 0; });
  }
  void wait_for_end(std::uint32_t n) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ended == n; });
  }
};

// The cores of scheduler and router, one after the other in this thread.
class DirectLoop {
 public:
  DirectLoop(const ScriptedRun& run, DirectIo& io, Marks& marks) : io_(io), marks_(marks), scheduler_(config(run), io.model()) {}

  void admit(const Request& request) {
    Admit m;
    m.id = {request.client, request.client};  // generations are the dispatcher's, and never the same
    m.request = Shared<Request>::of(request);
    call(m);
  }
  // Until nothing is in flight any more. False: something failed.
  bool run() {
    while (!tickets_.empty()) {
      Settled m;
      m.result = io_.await_result(tickets_.front());
      m.facts = io_.facts();
      tickets_.pop_front();
      call(m);
    }
    return ok_ && scheduler_.running() + scheduler_.waiting() == 0;
  }

 private:
  static actors::SchedulerConfig config(const ScriptedRun& run) {
    actors::SchedulerConfig out;
    out.depth = run.depth;
    out.max_batch = run.rows;
    out.step_tokens = std::max(512u, run.rows * 2);
    return out;
  }
  template <class M>
  void call(const M& m) {
    scheduler_.on(m, 0, out_);
    while (!out_.empty()) {
      std::swap(out_, work_);
      work_.drain([this](auto&& item) { handle(item); });
    }
    scheduler_.deliver(out_);
    out_.clear();
  }
  void handle(const Open& m) {
    Opened opened = io_.open(m);
    scheduler_.on(opened, 0, out_);
  }
  void handle(const Launch& m) {
    const auto launched = io_.launch(m.plan);
    Accepted accepted;
    accepted.ticket = m.plan->ticket;
    accepted.facts = io_.facts();
    if (const auto* error = std::get_if<DeviceError>(&launched)) {
      accepted.error = *error;
    } else {
      tickets_.push_back(m.plan->ticket);
    }
    scheduler_.on(accepted, 0, out_);
  }
  void handle(const Apply& m) {
    const auto done = io_.apply(m.effect);
    Applied applied;
    applied.facts = io_.facts();
    if (const auto* outcome = std::get_if<EffectOutcome>(&done)) applied.outcome = *outcome;
    if (const auto* error = std::get_if<DeviceError>(&done)) applied.error = *error;
    scheduler_.on(applied, 0, out_);
  }
  void handle(const Deliver& m) {
    for (const TokenEvent& e : m.batch->events) {
      if (e.request.client == 1) marks_.on_token(e.index);
    }
    for (const Finish& f : m.batch->finishes) ok_ = ok_ && f.reason == FinishReason::length;
  }
  void handle(const Sample&) { ok_ = false; }
  template <class M>
  void handle(const M&) {}

  DirectIo& io_;
  Marks& marks_;
  actors::SchedulerCore scheduler_;
  actors::SchedulerOutbox out_, work_;
  std::deque<Ticket> tickets_;
  bool ok_ = true;
};

}  // namespace

Result<ScriptedFigures> run_mailboxes(const ScriptedRun& run) {
  auto driver = device::make_host_driver();
  TROUPE_TRY(auto scripted, device::ScriptedModel::load(*driver, scripted_options(run)));
  device::ScriptedModel* model = scripted.get();
  RuntimeOptions options;
  options.depth = run.depth;
  options.max_batch = run.rows;
  options.step_tokens = std::max(512u, run.rows * 2);
  options.spin = run.spin;
  options.pin_control_thread = run.cpu;
  options.trace = run.trace;
  TROUPE_TRY(auto runtime, Runtime::start(options, std::move(driver), std::move(scripted)));

  Progress progress;
  Marks marks(run.steps);
  for (std::uint32_t i = 1; i <= run.rows; ++i) {
    const auto id = runtime->submit(make_request(run, i), [&](const RequestEvent& event) {
      const bool mark = event.token != nullptr && event.request.client == 1 && marks.on_token(event.token->index);
      if (!mark && event.finish == nullptr) return;
      const std::lock_guard lock(progress.mutex);
      if (mark) ++progress.marks;
      if (event.finish != nullptr) ++progress.ended;
      if (event.finish != nullptr && event.finish->reason != FinishReason::length) ++progress.failed;
      progress.changed.notify_one();
    });
    if (!id) return id.error();
  }
  progress.wait_for_mark(1);
  const RuntimeMetrics before = runtime->metrics();
  progress.wait_for_mark(2);
  const RuntimeMetrics after = runtime->metrics();
  progress.wait_for_end(run.rows);
  if (progress.failed != 0) return Error{ErrorCode::internal, "a request of the benchmark did not run to its length"};
  (void)runtime->drain(std::chrono::seconds(10));
  ScriptedFigures out = evaluate(run, model->times());
  out.messages_per_step =
      static_cast<double>(after.messages - before.messages) / static_cast<double>(after.scheduler.steps - before.scheduler.steps);
  out.trace_bytes_per_step =
      static_cast<double>(after.trace_bytes - before.trace_bytes) / static_cast<double>(after.scheduler.steps - before.scheduler.steps);
  marks.evaluate(out);
  TROUPE_TRY(runtime->stop());
  out.trace_lost = runtime->metrics().trace_lost;
  return out;
}

Result<ScriptedFigures> run_direct(const ScriptedRun& run) {
  const auto driver = device::make_host_driver();
  TROUPE_TRY(auto model, device::ScriptedModel::load(*driver, scripted_options(run)));
  TROUPE_TRY(auto io, DirectIo::create(*driver, *model, run.depth));
  const PinnedThread pinned(run.cpu);
  Marks marks(run.steps);
  DirectLoop loop(run, *io, marks);
  for (std::uint32_t i = 1; i <= run.rows; ++i) loop.admit(make_request(run, i));
  if (!loop.run()) return Error{ErrorCode::internal, "a request of the benchmark did not run to its length"};
  ScriptedFigures out = evaluate(run, model->times());
  marks.evaluate(out);
  TROUPE_TRY(io->teardown());
  return out;
}

}  // namespace troupe::tools
