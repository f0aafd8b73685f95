// The router's interface as direct calls, in one thread: what the same launch and await cost without mailboxes. The
// router's core, the ring and the model are the runtime's; between them are calls instead of messages.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "actors/device/ring.h"
#include "actors/router/core.h"
#include "device/model.h"

namespace troupe::tools {

class DirectIo final : public device::DeviceIo {
 public:
  // Driver and model outlive this.
  static Result<std::unique_ptr<DirectIo>> create(device::Driver& driver, device::ModelDeviceFeed& model, std::uint32_t depth);
  ~DirectIo() override;

  const ModelInfo& model() const override { return model_.info(); }
  DeviceFacts facts() const override { return router_.facts(); }
  std::uint32_t max_depth() const override { return depth_; }
  Opened open(const Open& open);
  std::variant<Ticket, DeviceError> launch(Shared<StepPlan> plan) override;
  // Spins on the step's event.
  Shared<StepResult> await_result(Ticket ticket) override;
  std::variant<EffectOutcome, DeviceError> apply(const Effect& effect) override;
  std::variant<LoraAck, DeviceError> lora(const LoraCommand& command) override;
  Result<void> teardown() override;

 private:
  struct Slot {
    Shared<LaunchedStep> step;
    DeviceError error;
  };
  DirectIo(device::Driver& driver, device::ModelDeviceFeed& model, std::uint32_t depth);
  void enqueue(Shared<LaunchedStep> step);

  device::Driver& driver_;
  device::ModelDeviceFeed& model_;
  std::uint32_t depth_;
  actors::RouterCore router_;
  actors::RouterOutbox out_;
  actors::Ring ring_;
  std::vector<device::DevicePtr> cells_;
  std::vector<Slot> slots_;
};

}  // namespace troupe::tools
