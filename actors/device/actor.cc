#include "actors/device/actor.h"

#include <utility>

namespace troupe::actors {

DeviceShell::DeviceShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const DeviceSetup& setup, const ModelInfo& model)
    : Shell(config, Sender::device, std::move(counts), setup.ring_slots, setup.step_timeout, setup.places.count, setup.prefill_slots),
      driver_(*setup.driver),
      ring_(*setup.driver, model, setup.slot_bytes, setup.ring_slots, setup.places, setup.prefill_slots) {}

DeviceShell::behavior_type DeviceShell::make_behavior() {
  return {
      [this](const Attach& m) {
        attach(m);
        return Done{};
      },
      [this](const StartDevice&) { return start(); },
      [this](const PollEvents&) {
        polls_ = true;
        if (home_ != nullptr)
          home_->idle_hook = {[](void* self, caf::execution_unit* unit) { return static_cast<DeviceShell*>(self)->poll(unit); }, this};
      },
      [this](const Watch& m) {
        handle(this, m);
        if (!polls_ || (m.error.code != ErrorCode::none && !m.on_stream)) return;
        polled_on(m.ring_slot).push_back({m.ticket, m.ring_slot, m.ctx.seq});
      },
      [this](const EventDone& m) { handle(this, m); },
      [this](const Tick& m) {
        if (timer_.due(now_ns(), *this, post_)) handle(this, m);
      },
      [this](const StopDevice&) { return stop(); },
  };
}

DeviceStarted DeviceShell::start() {
  if (auto made = ring_.make(); !made) return {made.error(), 0, {}};
  DeviceStarted started{{}, ring_.stream(), {}, ring_.copy_stream(), ring_.prefill_stream()};
  for (const SlotHandles& slot : ring_.slots()) started.cells.push_back(slot.cells);
  return started;
}

void DeviceShell::attach(const Attach& m) {
  peers_ = m.peers;
  RingReady ready;
  ready.slots = ring_.slots();
  ready.places = ring_.places();
  send_to(peers_->router, std::move(ready));
}

void DeviceShell::put(ReadSlot&& m) {
  Completed done;
  done.ring_slot = m.ring_slot;
  done.result = ring_.read(m);
  send_to(peers_->router, std::move(done));
}

std::vector<DeviceShell::Polled>& DeviceShell::polled_on(std::uint32_t slot) {
  if (slot >= ring_.slots().size()) return ring_.copy_stream() != 0 ? polled_copies_ : polled_;
  return ring_.slots()[slot].stream == kPrefillStream ? polled_prefill_ : polled_;
}

bool DeviceShell::poll(caf::execution_unit* unit) {
  const bool steps = poll(polled_, unit), prefill = poll(polled_prefill_, unit);
  return poll(polled_copies_, unit) || steps || prefill;
}

bool DeviceShell::poll(std::vector<Polled>& polled, caf::execution_unit* unit) {
  std::size_t done = 0;
  for (; done < polled.size(); ++done) {
    const Polled& step = polled[done];
    const Result<bool> complete = driver_.event_query(ring_.event(step.ring_slot));
    if (complete && !complete.value()) break;
    EventDone m;
    m.ticket = step.ticket;
    m.ring_slot = step.ring_slot;
    if (!complete) m.error = DeviceError{DeviceError::Phase::readback, complete.error().code, 0, 0, complete.error().what};
    post_.caused_by(step.cause);
    post_.send(peers_->device, std::move(m), unit);
  }
  polled.erase(polled.begin(), polled.begin() + static_cast<std::ptrdiff_t>(done));
  return !polled.empty();
}

Done DeviceShell::stop() {
  if (home_ != nullptr && home_->idle_hook.context == this) home_->idle_hook = {};
  polled_.clear();
  polled_prefill_.clear();
  polled_copies_.clear();
  if (auto gone = ring_.destroy(); !gone) return {gone.error()};
  return {};
}

void DeviceShell::on_exit() {
  (void)stop();
  Shell::on_exit();
}

}  // namespace troupe::actors
