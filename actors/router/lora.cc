// The adapter table (R9): which slot shows which generation, and the change that waits until nothing names what goes.
#include <algorithm>

#include "actors/router/state.h"

namespace troupe::actors {

namespace {

DeviceError refused(ErrorCode code, std::string what) { return device_error(DeviceError::Phase::effect, code, std::move(what)); }

void answer(const Lora& m, DeviceError error, RouterOutbox& out) {
  LoraReply reply;
  reply.ack.name = m.command.name;
  if (error.code == ErrorCode::none) reply.ack.adapter = m.show;
  reply.error = std::move(error);
  out.push(std::move(reply));
}

}  // namespace

bool RouterCore::State::has(AdapterRef adapter) const {
  if (adapter == AdapterRef{}) return true;
  const bool going = change && change->sent && change->command.hide == adapter;
  return adapter.slot < adapters.size() && adapter.generation != 0 && adapters[adapter.slot] == adapter.generation && !going;
}

// Sequences that name it; those that were released count until their fence (R3).
std::uint32_t RouterCore::State::users(AdapterRef adapter) const {
  if (adapter == AdapterRef{} || config.fault == RouterFault::lora_in_flight) return 0;
  return static_cast<std::uint32_t>(std::count_if(sequences.begin(), sequences.end(), [&](const RouterSequence& q) {
    return q.id.incarnation != 0 && q.adapter == adapter && !(q.released && config.fault == RouterFault::lora_at_finish);
  }));
}

void RouterCore::State::try_change(RouterOutbox& out) {
  if (!change || change->sent || users(change->command.hide) > 0) return;
  change->sent = true;
  out.push(ChangeTable{{}, change->command.show, change->command.hide});
}

void RouterCore::on(const Lora& m, TimeNs, RouterOutbox& out) {
  State& s = *s_;
  if (m.withdraw) {
    if (!s.change || s.change->sent) return;  // it is answered, or the stream actor's answer is on its way
    const std::uint32_t users = s.users(s.change->command.hide);
    answer(s.change->command,
           refused(ErrorCode::not_quiescent, std::to_string(users) + " sequences still name " + label(s.change->command.hide)), out);
    s.change.reset();
    return;
  }
  const AdapterRef show = m.show, hide = m.hide;
  const auto slots = static_cast<std::uint32_t>(s.adapters.size());
  DeviceError error;
  if (const ErrorCode code = s.refusal(); code != ErrorCode::none)
    error = refused(code, "the router refuses LoRA commands now");
  else if (s.adapters.empty())
    error = refused(ErrorCode::unsupported, "this device has no adapter slots");
  else if (s.change)
    error = refused(ErrorCode::overloaded, "a change of the adapter table is under way: one at a time");
  else if (show == AdapterRef{} && hide == AdapterRef{})
    error = refused(ErrorCode::bad_request, "the command changes nothing in the adapter table");
  else if (show != AdapterRef{} && (show.slot == 0 || show.slot >= slots || show.generation == 0))
    error = refused(ErrorCode::bad_request, label(show) + " is no adapter of slots 1 to " + std::to_string(slots - 1));
  else if (show != AdapterRef{} && s.adapters[show.slot] != 0)
    error = refused(ErrorCode::slot_in_use, "slot " + std::to_string(show.slot) + " is in the table");
  else if (!s.has(hide))
    error = refused(ErrorCode::unknown_adapter, label(hide) + " is not in the table");
  if (error.code != ErrorCode::none) return answer(m, std::move(error), out);
  s.change.emplace(State::TableChange{m, false});
  s.try_change(out);
}

void RouterCore::on(const TableChanged& m, TimeNs, RouterOutbox& out) {
  State& s = *s_;
  if (!s.change || !s.change->sent) return;
  const Lora command = std::move(s.change->command);
  s.change.reset();
  if (m.error.code != ErrorCode::none) return answer(command, refused(m.error.code, m.error.what), out);
  if (command.hide.slot != 0) s.adapters[command.hide.slot] = 0;
  if (command.show.slot != 0) s.adapters[command.show.slot] = command.show.generation;
  answer(command, {}, out);
}

}  // namespace troupe::actors
