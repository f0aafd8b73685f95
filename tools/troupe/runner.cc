#include "tools/troupe/runner.h"

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>

namespace troupe::tools {
namespace {

using Clock = std::chrono::steady_clock;

// A request between add() and its outcome. From submission to its end `outcome` belongs to the delivery thread; the
// hand-back is Shared::ended, under its mutex.
struct Live {
  RequestLine line;
  RequestOutcome outcome;
  Request request;
  std::uint64_t client = 0;
  std::uint64_t number = 0;
};

struct Timer {
  Clock::time_point at;
  enum class Kind : std::uint8_t { arrive, cancel } kind;
  std::uint64_t number;
  bool operator>(const Timer& o) const { return std::tie(at, number) > std::tie(o.at, o.number); }
};

}  // namespace

struct Runner::Impl {
  Runtime& runtime;
  Tokenize tokenize;
  OnDone on_done;

  // Shared with add(), close(), abort() and the delivery thread.
  std::mutex mutex;
  std::condition_variable changed;   // something for run() to do
  std::condition_variable has_room;  // for add()
  std::deque<std::variant<RequestLine, LineError>> added;
  std::vector<std::uint64_t> ended;
  std::vector<std::uint64_t> to_cancel;
  std::size_t queued = 0;  // added, not yet submitted
  bool closed = false;
  bool aborted = false;
  bool dirty = false;  // any of these changed since run() last looked
  std::atomic<std::uint64_t> tokens{0};

  // run()'s own.
  std::unordered_map<std::uint64_t, std::unique_ptr<Live>> live;
  std::deque<std::uint64_t> ready;  // arrived, not yet submitted
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers;
  std::map<std::string, std::pair<std::uint64_t, std::size_t>> clients;  // id -> client number, requests that share it
  std::uint64_t next_number = 1;
  std::size_t submitted = 0;  // and not ended
  bool full = false;          // the runtime said overloaded: wait until something has ended
  bool reporting = true;
  Clock::time_point start;

  Impl(Runtime& r, Tokenize t, OnDone d) : runtime(r), tokenize(std::move(t)), on_done(std::move(d)) {}

  void add(std::variant<RequestLine, LineError> item) {
    std::unique_lock lock(mutex);
    has_room.wait(lock, [&] { return queued < kMaxQueued || aborted; });
    if (aborted) return;
    ++queued;
    added.push_back(std::move(item));
    wake();
  }

  // Under the mutex.
  void wake() {
    dirty = true;
    changed.notify_one();
  }

  void leave_queue() {
    const std::lock_guard lock(mutex);
    --queued;
    has_room.notify_one();
  }

  void report(RequestOutcome outcome) {
    if (reporting && !on_done(std::move(outcome))) {
      reporting = false;
      const std::lock_guard lock(mutex);
      aborted = true;
      wake();
      has_room.notify_all();
    }
  }

  void take_in(std::variant<RequestLine, LineError>& item) {
    if (auto* bad = std::get_if<LineError>(&item)) {
      leave_queue();
      RequestOutcome outcome;
      outcome.id = bad->id;
      outcome.error = bad->error;
      report(std::move(outcome));
      return;
    }
    auto entry = std::make_unique<Live>();
    entry->line = std::move(std::get<RequestLine>(item));
    entry->number = next_number++;
    entry->outcome.id = entry->line.id;
    entry->outcome.place = entry->line.place;
    entry->outcome.sampled = entry->line.request.sampling.temperature > 0;
    if (entry->line.lora) {
      timers.push({start + std::chrono::milliseconds(entry->line.arrive_ms), Timer::Kind::arrive, entry->number});
      live.emplace(entry->number, std::move(entry));
      return;
    }
    auto ids = tokenize(entry->line);
    if (!ids) {
      leave_queue();
      entry->outcome.error = ids.error();
      report(std::move(entry->outcome));
      return;
    }
    auto& [client, sharers] = clients.try_emplace(entry->line.id, entry->number, 0).first->second;
    ++sharers;
    entry->client = client;
    entry->request = std::move(entry->line.request);
    entry->request.client = client;
    entry->request.prompt = std::move(ids).value();
    timers.push({start + std::chrono::milliseconds(entry->line.arrive_ms), Timer::Kind::arrive, entry->number});
    live.emplace(entry->number, std::move(entry));
  }

  void finish(std::uint64_t number) {
    const auto at = live.find(number);
    const std::unique_ptr<Live> entry = std::move(at->second);
    live.erase(at);
    if (!entry->line.lora) {
      const auto client = clients.find(entry->line.id);
      if (--client->second.second == 0) clients.erase(client);
    }
    report(std::move(entry->outcome));
  }

  // On the delivery thread.
  void on_event(Live& entry, const RequestEvent& event) {
    RequestOutcome& out = entry.outcome;
    out.text += event.text;
    if (event.token != nullptr) {
      out.token_ids.push_back(event.token->id);
      if (!std::isnan(event.token->logprob)) {
        TokenBest best{event.token->logprob, {}};
        if (event.best != nullptr) best.best.assign(event.best, event.best + event.token->best_size);
        out.logprobs.push_back(std::move(best));
      }
      tokens.fetch_add(1, std::memory_order_relaxed);
      if (entry.line.cancel_after_tokens == out.token_ids.size()) {
        const std::lock_guard lock(mutex);
        to_cancel.push_back(entry.number);
        wake();
      }
    }
    if (event.finish != nullptr) {
      out.finish = event.finish->reason;
      out.usage = event.finish->usage;
      out.seed = event.finish->seed;
      out.error = event.finish->error;
      const std::lock_guard lock(mutex);
      ended.push_back(entry.number);
      wake();
    }
  }

  // A LoRA command: requests that are submitted after it see its outcome.
  bool command(std::uint64_t number, Live& entry) {
    const auto accepted = runtime.lora(*entry.line.lora, [this, &entry, number](const LoraAnswer& answer) {
      entry.outcome.lora = answer.ack;
      entry.outcome.error = answer.error;
      const std::lock_guard lock(mutex);
      ended.push_back(number);
      wake();
    });
    leave_queue();
    if (accepted) {
      ++submitted;
    } else {
      entry.outcome.error = accepted.error();
      finish(number);
    }
    return true;
  }

  // False: overloaded, and something that runs will end.
  bool submit(std::uint64_t number) {
    Live* entry = live.at(number).get();
    if (entry->line.lora) return command(number, *entry);
    auto id = runtime.submit(entry->request, [this, entry](const RequestEvent& event) { on_event(*entry, event); });
    if (!id && id.error().code == ErrorCode::overloaded && submitted > 0) return false;
    leave_queue();
    if (!id) {
      entry->outcome.error = id.error();
      entry->outcome.error.what = entry->line.place + ": " + entry->outcome.error.what;
      finish(number);
      return true;
    }
    ++submitted;
    if (entry->line.cancel_ms) {
      timers.push({Clock::now() + std::chrono::milliseconds(*entry->line.cancel_ms), Timer::Kind::cancel, number});
    }
    if (entry->line.cancel_after_tokens == 0u) cancel(number);
    return true;
  }

  // The client number alone would also name a later request with the same id: only a live one is cancelled.
  void cancel(std::uint64_t number) {
    const auto at = live.find(number);
    if (at != live.end() && !at->second->line.lora) runtime.cancel(at->second->client);
  }

  void drop_waiting() {
    std::vector<std::uint64_t> waiting(ready.begin(), ready.end());
    ready.clear();
    for (; !timers.empty(); timers.pop()) {
      if (timers.top().kind == Timer::Kind::arrive) waiting.push_back(timers.top().number);
    }
    for (const std::uint64_t number : waiting) live.erase(number);
    for (const auto& [number, entry] : live)
      if (!entry->line.lora) runtime.cancel(entry->client);
  }

  void run() {
    start = Clock::now();
    std::deque<std::variant<RequestLine, LineError>> new_lines;
    std::vector<std::uint64_t> new_ends, new_cancels;
    bool stop = false, dropped = false;
    for (;;) {
      {
        std::unique_lock lock(mutex);
        if (ready.empty() || full) {
          if (timers.empty()) {
            changed.wait(lock, [&] { return dirty; });
          } else {
            changed.wait_until(lock, timers.top().at, [&] { return dirty; });
          }
        }
        dirty = false;
        if (aborted) {
          added.clear();
          closed = stop = true;
        }
        new_lines.swap(added);
        new_ends.swap(ended);
        new_cancels.swap(to_cancel);
      }
      for (const std::uint64_t number : new_ends) {
        --submitted;
        full = false;
        finish(number);
      }
      for (const std::uint64_t number : new_cancels) cancel(number);
      for (auto& item : new_lines) take_in(item);
      new_ends.clear();
      new_cancels.clear();
      new_lines.clear();
      for (; !timers.empty() && timers.top().at <= Clock::now(); timers.pop()) {
        const Timer timer = timers.top();
        if (timer.kind == Timer::Kind::arrive) {
          ready.push_back(timer.number);
        } else {
          cancel(timer.number);
        }
      }
      if (stop && !dropped) {
        drop_waiting();
        dropped = true;
        reporting = false;
      }
      while (!ready.empty() && !full) {
        if (submit(ready.front())) {
          ready.pop_front();
        } else {
          full = true;
        }
      }
      const std::lock_guard lock(mutex);
      if (closed && added.empty() && live.empty()) return;
    }
  }
};

Runner::Runner(Runtime& runtime, Tokenize tokenize, OnDone on_done)
    : impl_(std::make_unique<Impl>(runtime, std::move(tokenize), std::move(on_done))) {}
Runner::~Runner() = default;

void Runner::add(RequestLine line) { impl_->add(std::move(line)); }
void Runner::add(LineError error) { impl_->add(std::move(error)); }

void Runner::close() {
  const std::lock_guard lock(impl_->mutex);
  impl_->closed = true;
  impl_->wake();
}

void Runner::abort() {
  const std::lock_guard lock(impl_->mutex);
  impl_->aborted = true;
  impl_->wake();
  impl_->has_room.notify_all();
}

void Runner::run() { impl_->run(); }

std::uint64_t Runner::tokens() const { return impl_->tokens.load(std::memory_order_relaxed); }

}  // namespace troupe::tools
