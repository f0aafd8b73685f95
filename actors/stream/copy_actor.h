// The stream actor of the copy stream: the only one that enqueues on it (R12). KV blocks go to and from page-locked memory there,
// beside the steps. What a copy has to wait for on the compute stream comes with it as an event, and only once that is recorded: the
// router sends it then. On a thread of its own.
#pragma once

#include <memory>

#include "actors/stream/copies.h"
#include "actors/wire.h"
#include "device/model.h"

namespace troupe::actors {

class CopyStreamShell final : public CopyStreamActor::base {
 public:
  // Driver and model outlive the actor.
  CopyStreamShell(caf::actor_config& config, std::shared_ptr<Counts> counts, device::Driver* driver, device::ModelDeviceFeed* model,
                  std::uint32_t ring_slots, std::uint32_t places);
  const char* name() const override { return "copy_stream"; }
  behavior_type make_behavior() override;
  void on_exit() override { peers_.reset(); }

 private:
  device::Driver& driver_;
  Announcer announcer_;
  Copies copies_;
  std::shared_ptr<const Peers> peers_;
  Post post_;
  device::Stream stream_ = 0;
  bool bound_ = false;  // this actor's thread, to the device
};

}  // namespace troupe::actors
