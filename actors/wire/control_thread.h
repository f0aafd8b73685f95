// The runtime's own scheduler for CAF: one worker thread, the control thread, which runs every actor that is not
// detached. When it has nothing to run it polls an idle hook, does idle work, spins for a stated time and then parks.
//
// CAF's work-stealing scheduler takes 60 to 280 us to wake and burns half a core while it waits; that is why it is not
// used. Settings and hook are per actor system, so that one process may run several runtimes.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <caf/all.hpp>
#include <caf/policy/unprofiled.hpp>
#include <caf/scheduler/coordinator.hpp>

#include "actors/wire/inspect.h"

namespace troupe::actors {

// Polled by the control thread while it has nothing to run; set and cleared by an actor on that thread. Returns
// whether to go on polling instead of parking.
struct IdleHook {
  bool (*call)(void* context, caf::execution_unit* unit) = nullptr;
  void* context = nullptr;
};

// A piece of work that may as well be done now, by the control thread while it would only spin. Returns whether there is
// more. Set before the system is made.
struct IdleWork {
  bool (*call)(void* context) = nullptr;
  std::shared_ptr<void> context;
};

struct ControlOptions {
  std::chrono::nanoseconds spin = {};  // 0 = parks at once
  int cpu = -1;                        // to pin to; -1 = none
};

class ControlConfig : public caf::actor_system_config {
 public:
  explicit ControlConfig(const ControlOptions& options);
  ControlOptions control;
  mutable IdleHook idle_hook;              // the control thread's
  IdleWork idle_work;
  std::shared_ptr<const void> kept_alive;  // as long as the system
};

// The idle hook of the system that an actor on the control thread lives in.
IdleHook& idle_hook(caf::actor_system& system);

namespace control_detail {

// First in, first out; grows and never shrinks.
class JobRing {
 public:
  bool empty() const { return size_ == 0; }
  void push(caf::resumable* job) {
    if (size_ == jobs_.size()) grow();
    jobs_[(head_ + size_++) & (jobs_.size() - 1)] = job;
  }
  caf::resumable* pop() {
    caf::resumable* job = jobs_[head_];
    head_ = (head_ + 1) & (jobs_.size() - 1);
    --size_;
    return job;
  }

 private:
  void grow() {
    std::vector<caf::resumable*> bigger(jobs_.size() * 2);
    const std::size_t n = size_;
    for (std::size_t i = 0; i < n; ++i) bigger[i] = pop();
    jobs_.swap(bigger);
    head_ = 0;
    size_ = n;
  }
  std::vector<caf::resumable*> jobs_ = std::vector<caf::resumable*>(64);  // a power of two
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace control_detail

struct SpinPark : caf::policy::unprofiled {
  struct coordinator_data {
    explicit coordinator_data(caf::scheduler::abstract_coordinator*) {}
  };
  struct worker_data {
    explicit worker_data(caf::scheduler::abstract_coordinator* c) : config(&dynamic_cast<const ControlConfig&>(c->system().config())) {}
    worker_data(const worker_data& o) : config(o.config) {}
    const ControlConfig* config;
    control_detail::JobRing local;  // the worker's own
    bool started = false;
    std::mutex mutex;
    std::condition_variable wake;
    control_detail::JobRing external;  // from other threads; guarded by mutex
    std::atomic<std::size_t> n_external{0};
    bool parked = false;  // guarded by mutex
  };

  template <class C> void central_enqueue(C* self, caf::resumable* job) { self->worker_by_id(0)->external_enqueue(job); }
  template <class W> void external_enqueue(W* self, caf::resumable* job) {
    worker_data& w = d(self);
    bool wake;
    {
      const std::lock_guard lock(w.mutex);
      w.external.push(job);
      w.n_external.fetch_add(1, std::memory_order_release);
      wake = w.parked;
    }
    if (wake) w.wake.notify_one();
  }
  template <class W> void internal_enqueue(W* self, caf::resumable* job) { d(self).local.push(job); }
  template <class W> void resume_job_later(W* self, caf::resumable* job) { d(self).local.push(job); }

  template <class W> caf::resumable* dequeue(W* self) {
    worker_data& w = d(self);
    if (!w.started) start(w);
    if (caf::resumable* job = next(w)) return job;
    const std::int64_t spin = w.config->control.spin.count();
    std::int64_t until = spin > 0 ? now() + spin : 0;
    const IdleWork& work = w.config->idle_work;
    bool more = spin > 0 && work.call != nullptr;
    for (unsigned i = 1;; ++i) {
      const IdleHook& hook = w.config->idle_hook;
      const bool polling = hook.call != nullptr && hook.call(hook.context, self);
      if (caf::resumable* job = next(w)) return job;
      if (more) {
        more = work.call(work.context.get());
        continue;
      }
      if (!polling && (spin == 0 || ((i & 63) == 0 && now() >= until))) break;
      control_detail::pause_cpu();
    }
    std::unique_lock lock(w.mutex);
    w.parked = true;
    w.wake.wait(lock, [&] { return !w.external.empty(); });
    w.parked = false;
    w.n_external.fetch_sub(1, std::memory_order_relaxed);
    return w.external.pop();
  }

  template <class W, class F> void foreach_resumable(W* self, F f) {
    worker_data& w = d(self);
    while (!w.local.empty()) f(w.local.pop());
    const std::lock_guard lock(w.mutex);
    while (!w.external.empty()) f(w.external.pop());
  }
  template <class C, class F> void foreach_central_resumable(C*, F) {}

 private:
  static std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
  static caf::resumable* next(worker_data& w) {
    if (w.n_external.load(std::memory_order_acquire) != 0) {
      const std::lock_guard lock(w.mutex);
      while (!w.external.empty()) w.local.push(w.external.pop());
      w.n_external.store(0, std::memory_order_relaxed);
    }
    return w.local.empty() ? nullptr : w.local.pop();
  }
  static void start(worker_data& w) {
    w.started = true;
    pthread_setname_np(pthread_self(), "troupe.control");
    if (w.config->control.cpu < 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(w.config->control.cpu), &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // refused: it runs unpinned
  }
};

using ControlScheduler = caf::scheduler::coordinator<SpinPark>;

inline ControlConfig::ControlConfig(const ControlOptions& options) : control(options) {
  load<ControlScheduler>();
  set("scheduler.max-threads", std::size_t{1});
  set("scheduler.max-throughput", std::size_t{64});  // messages an actor takes in one go, so that one cannot starve the rest
  ::troupe::actors::add_message_types(*this);
}

inline IdleHook& idle_hook(caf::actor_system& system) {
  return dynamic_cast<const ControlConfig&>(system.config()).idle_hook;
}

}  // namespace troupe::actors
