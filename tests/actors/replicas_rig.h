// A runtime of several replicas on scripted models. What goes wrong in a life of one is programmed before it is opened, or
// injected into its driver while it runs.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/actors/rig.h"

namespace troupe::test {

// What was opened for the replicas. Pointers are the runtime's: of a life that is over they dangle.
class Lives {
 public:
  struct Life {
    std::uint32_t index = 0;
    std::uint32_t number = 0;  // of its replica, from 1
    device::Driver* driver = nullptr;
    device::ScriptedModel* model = nullptr;
  };
  // Called at each opening, before the model is made; an error is the opening's.
  using Prepare = std::function<Result<void>(std::uint32_t index, std::uint32_t life, device::Driver&, device::ScriptedOptions&)>;

  ReplicaSource source(std::uint32_t index, const device::ScriptedOptions& script, Prepare prepare) {
    ReplicaSource out;
    out.name = "host:" + std::to_string(index);
    out.open = [this, index, script, prepare = std::move(prepare)]() -> Result<OpenedReplica> {
      OpenedReplica opened;
      opened.driver = device::make_host_driver({.index = index});
      device::ScriptedOptions options = script;
      const std::uint32_t life = begin(index);
      if (prepare) {
        TROUPE_TRY(prepare(index, life, *opened.driver, options));
      }
      TROUPE_TRY(auto model, device::ScriptedModel::load(*opened.driver, options));
      const std::lock_guard lock(mutex_);
      lives_.push_back({index, life, opened.driver.get(), model.get()});
      opened.model = std::move(model);
      return opened;
    };
    return out;
  }
  // The last life of a replica that was opened.
  Life last(std::uint32_t index) const {
    const std::lock_guard lock(mutex_);
    Life out;
    for (const Life& life : lives_)
      if (life.index == index) out = life;
    return out;
  }
  std::uint32_t openings(std::uint32_t index) const {
    const std::lock_guard lock(mutex_);
    return index < begun_.size() ? begun_[index] : 0;
  }

 private:
  std::uint32_t begin(std::uint32_t index) {
    const std::lock_guard lock(mutex_);
    if (begun_.size() <= index) begun_.resize(index + 1);
    return ++begun_[index];
  }
  mutable std::mutex mutex_;
  std::vector<Life> lives_;
  std::vector<std::uint32_t> begun_;
};

struct ReplicasRig {
  std::unique_ptr<Clients> clients = std::make_unique<Clients>();
  std::unique_ptr<Lives> lives = std::make_unique<Lives>();
  std::unique_ptr<Runtime> runtime;

  ReplicaStatus status(std::uint32_t index) const {
    const auto replicas = runtime->metrics().replicas;
    return index < replicas.size() ? replicas[index] : ReplicaStatus{};
  }
  // Until it is in that state, in that life at least.
  void wait_state(std::uint32_t index, ReplicaState state, std::uint32_t life = 1) const {
    for (;;) {
      const ReplicaStatus s = status(index);
      if (s.state == state && s.replica.incarnation >= life) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

// Lost replicas are started again at once.
inline RuntimeOptions impatient(RuntimeOptions o = {}) {
  o.supervision.backoff = 1'000'000;
  o.supervision.max_backoff = 4'000'000;
  if (o.trace.flight_dir.empty()) o.trace.flight_dir = testing::TempDir();
  return o;
}

inline ReplicasRig make_replicas(std::uint32_t n, const RuntimeOptions& options, const device::ScriptedOptions& script,
                                 Lives::Prepare prepare = {}) {
  ReplicasRig rig;
  std::vector<ReplicaSource> sources;
  for (std::uint32_t i = 0; i < n; ++i) sources.push_back(rig.lives->source(i, script, prepare));
  auto runtime = Runtime::start(options, std::move(sources));
  EXPECT_TRUE(runtime) << runtime.error().what;
  rig.runtime = std::move(runtime.value());
  return rig;
}

}  // namespace troupe::test
