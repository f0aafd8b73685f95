// One place of a runtime for a replica, over all its lives: opens driver and model, starts a replica on them, and gives it
// back; again and again where the source can be opened again.
//
// Threads: one at a time (the runtime's while it starts and stops, the keeper's between) for all but peers(), retired(),
// recorder() and messages(), which any may call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/replica/replica.h"

namespace troupe::actors {

// What every replica of a runtime is made with.
struct Front {
  caf::actor_system* system = nullptr;
  FrontDoor dispatcher;
  DeliveryDoor delivery;
  std::shared_ptr<Counts> counts;  // its own
};

class ReplicaPlace {
 public:
  // `count` replicas are in the runtime; of one alone the first life is recorded with the front.
  // `movable`: what its replicas cannot finish another one, or the next life, goes on with.
  ReplicaPlace(const RuntimeOptions& options, ReplicaSource source, std::uint32_t index, std::size_t count, bool movable);
  ~ReplicaPlace();

  const std::string& name() const { return source_.name; }
  std::uint32_t weight() const { return source_.weight; }
  std::uint32_t index() const { return index_; }
  // Null: it is not open.
  const Replica* replica() const { return replica_.get(); }

  // Driver and model of the next life. Errors: what the source says; bad_request, closed: not of a runtime that stops.
  Result<void> open(std::uint32_t incarnation);
  // Starts its actors. Error: as Replica::start; then it is to be given back.
  Result<void> start(const Front& front, Home& home);

  // Between two lives: ends the present one, within `limit` if its device is not busy for longer. A device that is stays
  // here until the runtime stops (device_failed). Other errors: what was not given back.
  Result<void> stop(const Error& why, std::chrono::nanoseconds limit);

  // At the end of the runtime, as Replica's three. give_back leaves to a device that is still busy what it can reach, for ever:
  // device_lost, and abandoned() says that the actor system must be left to it too.
  void quiet(const Error& why);
  void stop_device(std::chrono::steady_clock::time_point until);
  Result<void> give_back();
  bool abandoned() const { return abandoned_; }

  // The runtime stops: nothing is opened any more.
  void close() { closing_ = true; }

  std::shared_ptr<const Peers> peers() const;         // of the present life; null: none
  std::shared_ptr<trace::Recorder> recorder() const;  // its own, of the last life that had one; null: none
  std::uint64_t messages() const;                     // sent by its actors, less those that the front counts
  SchedulerStats retired() const;                     // what earlier lives had counted

 private:
  RuntimeOptions options_for(std::uint32_t incarnation) const;
  void retire();
  Result<void> give_back(std::unique_ptr<Replica> replica, Result<void> stopped);

  const RuntimeOptions options_;
  ReplicaSource source_;
  const std::uint32_t index_;
  const std::size_t count_;
  const bool movable_;
  std::atomic<bool> closing_{false};
  std::uint32_t incarnation_ = 0;
  std::unique_ptr<Replica> replica_;
  Result<void> stopped_ = success();             // what its stop_device said
  std::vector<std::unique_ptr<Replica>> stuck_;  // earlier lives whose device was busy when they were stopped
  std::vector<Result<void>> stuck_stopped_;      // likewise
  bool abandoned_ = false;

  mutable std::mutex mutex_;  // all below
  std::shared_ptr<const Peers> peers_;
  std::shared_ptr<Counts> counts_;
  std::shared_ptr<trace::Recorder> recorder_;
  std::uint64_t messages_ = 0;
  SchedulerStats retired_;
};

}  // namespace troupe::actors
