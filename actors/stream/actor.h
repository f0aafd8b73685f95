// The stream actor of the compute stream: the only one that enqueues on it (R12). It turns a LaunchedStep into the
// model's view of it, has the model enqueue the forward pass and the readback, asks the driver to announce the event,
// and tells the device actor to watch. On the host it lives on the control thread, since the driver's own thread
// computes; where the driver runs kernels, on a thread of its own, since launching them takes its time.
//
// A step's view points into its LaunchedStep, so that is kept until its ring slot is used again: by then the router
// has seen the step settle (R4). Copies of KV blocks go the same way, in the same order (R12). That is also when the model hears fed_step_settled; at stop it hears it for the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actors/wire.h"
#include "device/model.h"

namespace troupe::actors {

struct StreamSetup {
  device::Driver* driver = nullptr;         // both outlive the actor
  device::ModelDeviceFeed* model = nullptr;
  std::uint32_t ring_slots = 2;
  std::uint32_t copy_places = 0;
};

class StreamShell final : public AtHome<StreamActor> {
 public:
  StreamShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const StreamSetup& setup);
  const char* name() const override { return "stream"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  // One slot of the ring. The driver's thread uses `post`, `ticket` and `device` from the moment notify_event returns
  // until it has sent EventDone; this actor at any other time. The ring's rules keep the two apart.
  struct Slot {
    Slot(std::shared_ptr<Counts> counts, std::uint32_t index)
        : post(Sender::driver, std::move(counts), static_cast<std::uint16_t>(index)), ring_slot(index) {}
    Post post;
    DeviceActor device;
    Ticket ticket;
    std::uint32_t ring_slot;
    Shared<LaunchedStep> step;
    std::vector<Shared<LaunchedStep>> orphans;  // that the stream passes before this step
    bool enqueued = false;
  };

  void enqueue(const Enqueue& m);
  void change(const ChangeTable& m);
  Result<void> bind();
  Result<void> enqueue(const LaunchedStep& step, Slot& slot);
  bool mark_end(const LaunchedStep& step, Slot& slot);
  void enqueue(const CopyBlocks& m);
  Result<void> announce_later(device::Event event, Slot& slot);
  void settle(Slot& slot);
  void settle_all();
  static void announce(void* context, device::Event event, ErrorCode status);

  device::Driver& driver_;
  device::ModelDeviceFeed& model_;
  std::shared_ptr<const Peers> peers_;
  Post post_;
  device::Stream stream_ = 0;
  bool bound_ = false;   // this actor's thread, to the device
  bool polled_ = false;  // the driver announces nothing
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::unique_ptr<Slot>> places_;  // of copies; numbered after the ring's slots
  std::vector<device::DevicePtr> cells_;  // by ring slot; steps in flight read it, so it never changes
  // Steps whose enqueueing failed half-way, and no event could be recorded behind it. They wait for the next step that has one.
  std::vector<Shared<LaunchedStep>> orphans_;
};

}  // namespace troupe::actors
