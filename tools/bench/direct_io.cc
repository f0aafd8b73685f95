#include "tools/bench/direct_io.h"

#include <string>
#include <utility>

namespace troupe::tools {
namespace {

// The one message of type M that the router answered; the rest goes to `other`.
template <class M, class F>
M take(actors::RouterOutbox& out, F&& other) {
  M answer{};
  out.drain([&](auto&& m) {
    if constexpr (std::is_same_v<std::decay_t<decltype(m)>, M>) {
      answer = std::forward<decltype(m)>(m);
    } else {
      other(std::forward<decltype(m)>(m));
    }
  });
  return answer;
}
constexpr auto kIgnore = [](auto&&) {};

}  // namespace

DirectIo::DirectIo(device::Driver& driver, device::ModelDeviceFeed& model, std::uint32_t depth)
    : driver_(driver),
      model_(model),
      depth_(depth),
      router_(actors::RouterConfig{.incarnation = 1, .depth = depth}, model.info()),
      ring_(driver, model.info(), {model.cells_bytes(), model.upload_bytes()}, depth + 1),
      slots_(depth + 1) {}

Result<std::unique_ptr<DirectIo>> DirectIo::create(device::Driver& driver, device::ModelDeviceFeed& model, std::uint32_t depth) {
  std::unique_ptr<DirectIo> io(new DirectIo(driver, model, depth));
  TROUPE_TRY(io->ring_.make());
  RingReady ready;
  ready.slots = io->ring_.slots();
  for (const SlotHandles& slot : ready.slots) io->cells_.push_back(slot.cells);
  io->router_.on(ready, 0, io->out_);
  io->out_.clear();
  return io;
}

DirectIo::~DirectIo() { (void)ring_.destroy(); }

Opened DirectIo::open(const Open& open) {
  router_.on(open, 0, out_);
  return take<Opened>(out_, kIgnore);
}

void DirectIo::enqueue(Shared<LaunchedStep> step) {
  Slot& slot = slots_[step->slot.slot];
  slot.step = std::move(step);
  slot.error = {};
  const LaunchedStep& s = *slot.step;
  device::StepView view;
  view.ticket = s.ticket;
  view.tag = s.ticket.tag();
  view.rows = s.rows;
  view.tokens = s.tokens;
  view.deltas = s.deltas;
  view.cells = s.slot.cells;
  view.cell_arrays = cells_;
  view.upload = reinterpret_cast<void*>(s.slot.upload);
  const auto enqueued = [&]() -> Result<void> {
    TROUPE_TRY(auto logits, model_.decode_batch_fed(view, ring_.stream()));
    const device::ReadbackTarget target{reinterpret_cast<Readback*>(s.slot.readback), reinterpret_cast<float*>(s.slot.logits)};
    return model_.argmax_batch_to_feed(logits, view, target, s.slot.event, ring_.stream());
  }();
  if (!enqueued) slot.error = DeviceError{DeviceError::Phase::forward, enqueued.error().code, 0, 0, enqueued.error().what};
}

std::variant<Ticket, DeviceError> DirectIo::launch(Shared<StepPlan> plan) {
  Launch m;
  m.plan = std::move(plan);
  router_.on(m, 0, out_);
  const Accepted accepted = take<Accepted>(out_, [this](auto&& other) {
    if constexpr (std::is_same_v<std::decay_t<decltype(other)>, Enqueue>) enqueue(std::move(other.step));
  });
  if (accepted.error.code != ErrorCode::none) return accepted.error;
  return accepted.ticket;
}

Shared<StepResult> DirectIo::await_result(Ticket ticket) {
  for (Slot& slot : slots_) {
    if (!slot.step || slot.step->ticket != ticket) continue;
    ReadSlot read{.ticket = ticket,
                  .ring_slot = slot.step->slot.slot,
                  .n_rows = static_cast<std::uint32_t>(slot.step->rows.size()),
                  .n_logits = slot.step->n_logits,
                  .error = slot.error};
    while (read.error.code == ErrorCode::none) {
      const auto done = driver_.event_query(slot.step->slot.event);
      if (!done) read.error = DeviceError{DeviceError::Phase::readback, done.error().code, 0, 0, done.error().what};
      if (done && done.value()) break;
    }
    model_.fed_step_settled(ticket);
    Completed completed;
    completed.ring_slot = read.ring_slot;
    completed.result = ring_.read(read);
    slot.step = {};
    router_.on(completed, 0, out_);
    return take<Settled>(out_, kIgnore).result;
  }
  StepResult unknown;
  unknown.ticket = ticket;
  unknown.error = DeviceError{DeviceError::Phase::readback, ErrorCode::unknown_ticket, 0, 0, label(ticket) + " is not open"};
  return Shared<StepResult>::of(std::move(unknown));
}

std::variant<EffectOutcome, DeviceError> DirectIo::apply(const Effect& effect) {
  Apply m;
  m.effect = effect;
  router_.on(m, 0, out_);
  Applied applied = take<Applied>(out_, kIgnore);
  if (applied.error.code != ErrorCode::none) return applied.error;
  return applied.outcome;
}

std::variant<LoraAck, DeviceError> DirectIo::lora(const LoraCommand& command) {
  Lora m;
  m.command = command;
  router_.on(m, 0, out_);
  LoraReply reply = take<LoraReply>(out_, kIgnore);
  if (reply.error.code != ErrorCode::none) return reply.error;
  return reply.ack;
}

Result<void> DirectIo::teardown() {
  router_.on(Teardown{}, 0, out_);
  out_.clear();
  return ring_.destroy();
}

}  // namespace troupe::tools
