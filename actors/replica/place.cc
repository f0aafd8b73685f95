#include "actors/replica/place.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "actors/replica/sums.h"
#include "actors/wire/ask.h"

namespace troupe::actors {
namespace {

constexpr std::chrono::seconds kFigures{1};  // that a scheduler has for its last figures

bool busy(const Result<void>& stopped) { return !stopped && stopped.error().code == ErrorCode::device_failed; }

}  // namespace

ReplicaPlace::ReplicaPlace(const RuntimeOptions& options, ReplicaSource source, std::uint32_t index, std::size_t count, bool movable)
    : options_(options), source_(std::move(source)), index_(index), count_(count), movable_(movable) {}
ReplicaPlace::~ReplicaPlace() = default;

// Files of several replicas, and of several lives, are not the same ones.
RuntimeOptions ReplicaPlace::options_for(std::uint32_t incarnation) const {
  RuntimeOptions o = options_;
  const std::string number = "r" + std::to_string(index_);
  if (count_ > 1 && !o.spill_dir.empty()) o.spill_dir += "/" + number;
  const std::string life = incarnation > 1 ? "." + std::to_string(incarnation) : "";
  if (count_ > 1) o.trace.flight_bytes /= count_ + 1;  // the front has its share too
  if (!o.trace.file.empty() && (count_ > 1 || incarnation > 1)) o.trace.file += "." + number + life;
  return o;
}

Result<void> ReplicaPlace::open(std::uint32_t incarnation) {
  if (closing_) return runtime_closed();
  TROUPE_TRY(auto opened, source_.open());
  if (!opened.driver || !opened.model) return Error{ErrorCode::bad_request, "a replica needs a driver and a model"};
  const RuntimeOptions options = options_for(incarnation);
  const Error wrong = check(options, opened.model->info());
  incarnation_ = incarnation;
  stopped_ = success();
  replica_ =
      std::make_unique<Replica>(options, ReplicaRef{index_, incarnation}, movable_, std::move(opened.driver), std::move(opened.model));
  if (wrong.code == ErrorCode::none) return success();
  replica_.reset();
  return wrong;
}

Result<void> ReplicaPlace::start(const Front& front, Home& home) {
  std::shared_ptr<Counts> counts = front.counts;
  std::shared_ptr<trace::Recorder> recorder;
  const RuntimeOptions options = options_for(incarnation_);
  if (count_ > 1 || incarnation_ > 1) {
    counts = std::make_shared<Counts>();
    counts->home = &home;
    counts->place = {static_cast<std::uint8_t>(kFirstReplica + index_), incarnation_};
    if (!options.trace.file.empty() || options.trace.flight_bytes != 0) {
      trace::CoreConfigs configs = replica_->configs();
      configs.part = counts->place.part;
      TROUPE_TRY(recorder, trace::Recorder::start(options.trace, std::move(configs)));
      counts->recorder = recorder;
    }
    if (!options_.spill_dir.empty()) {
      std::error_code error;  // if it is not there and cannot be made, opening what is in it says so
      std::filesystem::create_directory(options_.spill_dir, error);
    }
  }
  TROUPE_TRY(replica_->start({front.system, counts, front.dispatcher, front.delivery}));
  replica_->attach();
  const std::lock_guard lock(mutex_);
  peers_ = replica_->peers();
  recorder_ = std::move(recorder);
  counts_ = counts == front.counts ? nullptr : std::move(counts);
  return success();
}

void ReplicaPlace::quiet(const Error& why) {
  if (!replica_ || !replica_->peers()) return;
  const auto figures = ask<SchedulerFigures>(*replica_->system(), replica_->peers()->scheduler, Ask{}, kFigures);
  {
    const std::lock_guard lock(mutex_);
    if (figures) retired_ = sum(retired_, figures.value().stats);
    peers_.reset();
  }
  replica_->quiet(why);
}

Result<void> ReplicaPlace::stop(const Error& why, std::chrono::nanoseconds limit) {
  quiet(why);
  Result<void> result = success();
  if (replica_) {
    result = replica_->stop_device(std::chrono::steady_clock::now() + limit);
    if (busy(result)) {
      stuck_.push_back(std::move(replica_));
    } else {
      result = replica_->give_back(std::move(result));
    }
    replica_.reset();
  }
  retire();
  return result;
}

void ReplicaPlace::stop_device(std::chrono::steady_clock::time_point until) {
  if (replica_) stopped_ = replica_->stop_device(until);
  for (const auto& replica : stuck_) stuck_stopped_.push_back(replica->stop_device(until));
}

Result<void> ReplicaPlace::give_back(std::unique_ptr<Replica> replica, Result<void> stopped) {
  if (!busy(stopped)) return replica->give_back(std::move(stopped));
  // A thread of the driver is still at work on a step and will call into the stream actor when it is done: everything
  // that it can reach is left to it.
  (void)replica.release();
  abandoned_ = true;
  return Error{ErrorCode::device_lost,
               "the device was still busy when the time to stop was over; what it holds is abandoned (" + stopped.error().what + ")"};
}

Result<void> ReplicaPlace::give_back() {
  Result<void> result = success();
  if (replica_) result = give_back(std::move(replica_), stopped_);
  for (std::size_t i = 0; i < stuck_.size(); ++i) {
    Result<void> given = give_back(std::move(stuck_[i]), i < stuck_stopped_.size() ? stuck_stopped_[i] : success());
    if (!given && result) result = std::move(given);
  }
  stuck_.clear();
  retire();
  return result;
}

// The recording of a life ends with it.
void ReplicaPlace::retire() {
  std::shared_ptr<trace::Recorder> recorder;
  {
    const std::lock_guard lock(mutex_);
    peers_.reset();
    if (counts_) messages_ += counts_->total();
    counts_.reset();
    recorder = recorder_;
  }
  if (recorder) (void)recorder->stop();
}

std::shared_ptr<const Peers> ReplicaPlace::peers() const {
  const std::lock_guard lock(mutex_);
  return peers_;
}
std::shared_ptr<trace::Recorder> ReplicaPlace::recorder() const {
  const std::lock_guard lock(mutex_);
  return recorder_;
}
std::uint64_t ReplicaPlace::messages() const {
  const std::lock_guard lock(mutex_);
  return messages_ + (counts_ ? counts_->total() : 0);
}
SchedulerStats ReplicaPlace::retired() const {
  const std::lock_guard lock(mutex_);
  return retired_;
}

}  // namespace troupe::actors
