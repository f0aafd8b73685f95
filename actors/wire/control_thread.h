// The runtime's own scheduler for CAF: the control threads, which run every actor that is not detached. An actor stays on
// one of them, its home (actors/wire/home.h); without a home it runs on the first. A thread that has nothing to run polls
// its idle hook, does idle work, spins for a stated time and then parks; as long as its hook has something to wait for, it
// wakes every kPollInterval to poll it.
//
// CAF's work-stealing scheduler takes 60 to 280 us to wake and burns half a core while it waits; that is why it is not
// used. Settings and hooks are per actor system, so that one process may run several runtimes.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <caf/all.hpp>
#include <caf/policy/unprofiled.hpp>
#include <caf/scheduler/coordinator.hpp>

#include "actors/wire/home.h"
#include "actors/wire/inspect.h"

namespace troupe::actors {

// How often a thread that has ended its spin polls. A step takes milliseconds, and the device has the next ones already.
inline constexpr std::chrono::microseconds kPollInterval{50};

struct ControlOptions {
  std::chrono::nanoseconds spin = {};  // since the last thing that it ran; 0 = parks at once
  int cpu = -1;                        // to pin the first thread to, and the others to the ones after it; -1 = none
  std::size_t threads = 1;
};

// One control thread's place for actors. Made with the settings; usable once the system is there (start_system).
class ControlThread;

class ControlConfig : public caf::actor_system_config {
 public:
  explicit ControlConfig(const ControlOptions& options);
  ~ControlConfig() override;
  ControlConfig(ControlConfig&&) = delete;

  // The home of actors on control thread `thread`. Outlives the system.
  Home& home(std::size_t thread) const;

  const ControlOptions control;
  std::vector<IdleWork> idle_work;         // by thread
  std::shared_ptr<const void> kept_alive;  // as long as the system

 private:
  friend std::unique_ptr<caf::actor_system> start_system(ControlConfig& config);
  std::vector<std::unique_ptr<ControlThread>> threads_;
};

// A system whose homes can be used.
std::unique_ptr<caf::actor_system> start_system(ControlConfig& config);

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
    Home* home = nullptr;           // once started
    control_detail::JobRing local;  // the worker's own
    std::mutex mutex;
    std::condition_variable wake;
    control_detail::JobRing external;  // from other threads; guarded by mutex
    std::atomic<std::size_t> n_external{0};
    bool parked = false;  // guarded by mutex
  };

  template <class C>
  void central_enqueue(C* self, caf::resumable* job) {
    self->worker_by_id(0)->external_enqueue(job);
  }
  template <class W>
  void external_enqueue(W* self, caf::resumable* job) {
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
  template <class W>
  void internal_enqueue(W* self, caf::resumable* job) {
    d(self).local.push(job);
  }
  template <class W>
  void resume_job_later(W* self, caf::resumable* job) {
    d(self).local.push(job);
  }

  template <class W>
  caf::resumable* dequeue(W* self) {
    worker_data& w = d(self);
    if (w.home == nullptr) start(w, self->id());
    if (caf::resumable* job = next(w)) return job;
    const std::int64_t spin = w.config->control.spin.count();
    const std::int64_t until = spin > 0 ? now() + spin : 0;
    const IdleWork& work = w.config->idle_work[self->id()];
    bool spinning = spin > 0;
    bool more = spinning && work.call != nullptr;
    for (unsigned i = 1;; ++i) {
      const IdleHook& hook = w.home->idle_hook;
      const bool polling = hook.call != nullptr && hook.call(hook.context, self);
      if (caf::resumable* job = next(w)) return job;
      if (more) {
        more = work.call(work.context.get());
        continue;
      }
      if (spinning) {
        control_detail::pause_cpu();
        spinning = (i & 63) != 0 || now() < until;
        continue;
      }
      park(w, polling);
      if (caf::resumable* job = next(w)) return job;
    }
  }

  template <class W, class F>
  void foreach_resumable(W* self, F f) {
    worker_data& w = d(self);
    while (!w.local.empty()) f(w.local.pop());
    const std::lock_guard lock(w.mutex);
    while (!w.external.empty()) f(w.external.pop());
  }
  template <class C, class F>
  void foreach_central_resumable(C*, F) {}

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
  // Until there is a job from another thread; not longer than to the next poll.
  static void park(worker_data& w, bool polling) {
    std::unique_lock lock(w.mutex);
    const auto woken = [&] { return !w.external.empty(); };
    w.parked = true;
    if (polling)
      w.wake.wait_for(lock, kPollInterval, woken);
    else
      w.wake.wait(lock, woken);
    w.parked = false;
  }
  static void start(worker_data& w, std::size_t thread) {
    w.home = &w.config->home(thread);
    const std::string name = w.config->control.threads == 1 ? "troupe.control" : "troupe.ctl." + std::to_string(thread);
    pthread_setname_np(pthread_self(), name.c_str());
    if (w.config->control.cpu < 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(w.config->control.cpu) + static_cast<unsigned>(thread), &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // refused: it runs unpinned
  }
};

using ControlScheduler = caf::scheduler::coordinator<SpinPark>;

class ControlThread final : public Home {
 public:
  void attach(caf::actor_system& system, std::size_t thread) {
    system_ = &system;
    worker_ = dynamic_cast<ControlScheduler&>(system.scheduler()).worker_by_id(thread);
  }
  void exec_later(caf::resumable* job) override { static_cast<caf::scheduler::worker<SpinPark>*>(worker_)->external_enqueue(job); }
};

inline ControlConfig::ControlConfig(const ControlOptions& options) : control(options), idle_work(options.threads) {
  for (std::size_t i = 0; i < options.threads; ++i) threads_.push_back(std::make_unique<ControlThread>());
  load<ControlScheduler>();
  set("scheduler.max-threads", options.threads);
  set("scheduler.max-throughput", std::size_t{64});  // messages an actor takes in one go, so that one cannot starve the rest
  ::troupe::actors::add_message_types(*this);
}
inline ControlConfig::~ControlConfig() = default;
inline Home& ControlConfig::home(std::size_t thread) const { return *threads_[thread]; }

inline std::unique_ptr<caf::actor_system> start_system(ControlConfig& config) {
  auto system = std::make_unique<caf::actor_system>(config);
  for (std::size_t i = 0; i < config.threads_.size(); ++i) config.threads_[i]->attach(*system, i);
  return system;
}

}  // namespace troupe::actors
