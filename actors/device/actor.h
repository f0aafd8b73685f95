// The device actor's shell: owns the ring, reads a slot when its core says so, and where the driver does not announce
// completions (CUDA) polls the events of the steps in flight from the control thread's idle loop.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "actors/device/core.h"
#include "actors/device/ring.h"
#include "actors/wire.h"

namespace troupe::actors {

struct DeviceSetup {
  device::Driver* driver = nullptr;  // outlives the actor
  SlotBytes slot_bytes{};
  std::uint32_t ring_slots = 2;
  TimeNs step_timeout = 0;
  CopyPlaces places{};
  std::uint32_t prefill_slots = 0;  // of ring_slots
};

class DeviceShell final : public Shell<DeviceActor, DeviceCore, DeviceOutbox> {
 public:
  DeviceShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const DeviceSetup& setup, const ModelInfo& model);
  const char* name() const override { return "device"; }
  behavior_type make_behavior() override;
  void on_exit() override;

  // Asks for the steps in flight; sends EventDone to this actor for each that has completed. Whether any is left.
  bool poll(caf::execution_unit* unit);

  void put(ReadSlot&& m);
  void put(CopyDone&& m) { send_to(peers_->router, std::move(m)); }
  void put(SetTimer&& m) { timer_.set(m.at, *this, post_); }

 private:
  struct Polled {
    Ticket ticket;
    std::uint32_t ring_slot = 0;
    std::uint64_t cause = 0;
  };
  std::vector<Polled>& polled_on(std::uint32_t slot);  // of the slot's stream
  // Those of one stream; whether any is left.
  bool poll(std::vector<Polled>& polled, caf::execution_unit* unit);
  DeviceStarted start();
  Done stop();
  void attach(const Attach& m);

  device::Driver& driver_;
  Ring ring_;
  Timer timer_;
  bool polls_ = false;
  std::vector<Polled> polled_, polled_prefill_, polled_copies_;  // each in the order of its stream; the latter two: of one of their own
};

}  // namespace troupe::actors
