// What a command does, from its turn in the FIFO to its answer, and which requests wait for it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/lora/state.h"

namespace troupe::actors {

using Kind = LoraCommand::Kind;

LoraCore::State::Slot* LoraCore::State::find(const std::string& name) {
  for (Slot& slot : slots)
    if (slot.ref.slot != 0 && !slot.retired && slot.name == name) return &slot;
  return nullptr;
}

LoraCore::State::Slot* LoraCore::State::find_command(std::uint64_t id) {
  for (Slot& slot : slots)
    if (slot.ref.slot != 0 && slot.command == id) return &slot;
  return nullptr;
}

// Whether the outcome of the command may change what `name` stands for.
bool LoraCore::State::affects(const LoraCommand& c, std::uint32_t slot, const std::string& name) const {
  if (c.kind == Kind::rotate || c.kind == Kind::list) return false;
  if (c.name == name) return true;
  return slot < slots.size() && !slots[slot].retired && slots[slot].ref.slot != 0 && slots[slot].name == name;
}

bool LoraCore::State::blocked(const Waiting& w, const std::vector<const Command*>& before) const {
  if (config.fault == LoraFault::never_closes) return false;
  if (config.policy == LoraPolicy::global && (running || !before.empty())) return true;
  if (!w.admit.output.empty()) {  // what it is bound to is known; only what takes just that away concerns it
    if (w.admit.adapter_command == 0 || !running || running->slot >= slots.size()) return false;
    return slots[running->slot].ref.slot != 0 && slots[running->slot].command == w.admit.adapter_command;
  }
  std::string name = w.admit.request->adapter;
  if (name.empty()) {
    for (const Command* c : before)
      if (c->c.kind == Kind::rotate) return true;
    if (standard.empty()) return false;
    name = standard;
  }
  if (running && affects(running->c, running->slot, name)) return true;
  return std::any_of(before.begin(), before.end(),
                     [&](const Command* c) { return affects(c->c, c->c.kind == Kind::load_into_slot ? c->c.slot - 1 : kNone, name); });
}

void LoraCore::State::bind(const Waiting& w, TimeNs now, LoraOutbox& out) {
  Admit admit = w.admit;
  admit.waited += now - w.since;
  stats.delayed += now > w.since ? 1 : 0;
  const std::string& name = admit.request->adapter.empty() ? standard : admit.request->adapter;
  Bound b;
  const bool again = !admit.output.empty();
  std::uint64_t command = 0;
  if (again ? admit.adapter_command != 0 : !name.empty()) {
    if (Slot* slot = again ? find_command(admit.adapter_command) : find(name)) {
      command = slot->command;
      b = {static_cast<std::uint32_t>(slot - slots.data()), slot->ref};
      ++slot->users;
      ++stats.bound;
      slot->used = ++clock;
    } else {
      ++stats.unknown;
      if (again)
        admit.error = Error{ErrorCode::adapter_gone, "the adapter that the request was bound to is not on the replica that took it over"};
      else
        admit.error =
            Error{ErrorCode::unknown_adapter, fmt::format("no adapter is called \"{}\"; load it first, or leave the name out", name)};
    }
  }
  if (config.movable) out.push(LoraBound{{}, {admit.id, admit.attempt}, command, config.replica});
  admit.adapter = b.ref;
  bound.emplace(admit.id.generation, b);
  out.push(std::move(admit));
}

// Of the seed: a free slot, else one without users: a retired adapter's, then the command's own name's, then the one that was
// used longest ago; the standard adapter's only if it is that one that is loaded again.
std::optional<std::uint32_t> LoraCore::State::choose(const LoraCommand& c) const {
  std::optional<std::uint32_t> best;
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    if (slot.ref.slot == 0) return i;
    if (slot.in_use() || (!slot.retired && slot.name == standard && slot.name != c.name)) continue;
    const auto rank = [&](const Slot& s) { return s.retired ? 0 : s.name == c.name ? 1 : 2; };
    if (!best || (rank(slot) != rank(slots[*best]) ? rank(slot) < rank(slots[*best]) : slot.used < slots[*best].used)) best = i;
  }
  return best;
}

// Where none is without users: one to which nobody is admitted any more, since it is retired or the command's own name, so
// that its users only become fewer.
std::optional<std::uint32_t> LoraCore::State::draining_slot(const LoraCommand& c) const {
  std::optional<std::uint32_t> best;
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    if (!slot.retired && slot.name != c.name) continue;
    if (!best || slot.users < slots[*best].users) best = i;
  }
  return best;
}

std::uint32_t LoraCore::State::users() const {
  if (config.policy == LoraPolicy::global) return static_cast<std::uint32_t>(bound.size());
  return running && running->slot != kNone ? slots[running->slot].users + slots[running->slot].reads : 0;
}

bool LoraCore::State::quiet() const { return users() == 0; }

void LoraCore::State::start(Command&& command, TimeNs now, LoraOutbox& out) {
  Running& r = running.emplace(Running{});  // clang 14 takes a nested class for one that cannot be made of nothing
  r.id = command.id;
  r.c = std::move(command.c);
  r.image = std::move(command.image);
  r.start = now;
  r.bound = now + (r.c.max_wait > 0 ? r.c.max_wait : config.max_wait);
  r.phase = Running::Phase::waiting;
  const Slot* named = r.c.name.empty() ? nullptr : find(r.c.name);
  if (r.c.kind == Kind::promote && !r.image)
    return fail(ErrorCode::no_such_peer, fmt::format("there is no replica \"{}\" to take adapters from", r.c.peer), now, out);
  if (r.c.name.empty() && r.c.kind != Kind::rotate) return fail(ErrorCode::bad_request, "the command names no adapter", now, out);
  if (r.c.kind == Kind::rotate || r.c.kind == Kind::unload) {
    if (named == nullptr && !r.c.name.empty())
      return fail(ErrorCode::unknown_adapter, fmt::format("no adapter is called \"{}\"", r.c.name), now, out);
    if (r.c.kind == Kind::rotate) return complete(now, out);
    r.slot = static_cast<std::uint32_t>(named - slots.data());
    return proceed(now, out);
  }
  if (r.c.path.empty() && !r.image) return fail(ErrorCode::bad_request, "the command names no folder", now, out);
  if (r.c.kind == Kind::load_into_slot) {
    if (r.c.slot == 0 || r.c.slot > slots.size())
      return fail(ErrorCode::bad_request, fmt::format("slot {}; slots 1 to {} are there", r.c.slot, slots.size()), now, out);
    r.slot = r.c.slot - 1;
  }
  if (free_memory.empty()) return fail(ErrorCode::overloaded, "an earlier load has not returned yet; try again later", now, out);
  r.fresh = {free_memory.back(), config.fault == LoraFault::keep_generation ? 1 : ++generation};
  free_memory.pop_back();
  r.phase = Running::Phase::loading;
  out.push(LoadAdapter{{}, r.id, r.fresh.slot, r.c.path, r.image});
}

// The adapter is loaded, or nothing has to be: the table changes as soon as what must go is quiet.
void LoraCore::State::proceed(TimeNs now, LoraOutbox& out) {
  Running& r = *running;
  if (r.ready == 0) r.ready = now;
  if (config.policy == LoraPolicy::global && !quiet()) return;
  if (r.slot == kNone) {
    auto slot = choose(r.c);
    if (!slot) slot = draining_slot(r.c);
    if (!slot) {
      const auto least = std::min_element(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) { return a.users < b.users; });
      return fail(ErrorCode::slot_in_use,
                  fmt::format("all {} adapter slots have users, \"{}\" has {}: unload one, or load into its slot", slots.size(),
                              least->name, least->users),
                  now, out);
    }
    r.slot = *slot;
  }
  if (quiet()) return change(now, out);
  stats.waited += std::exchange(r.waited, true) ? 0 : 1;
}

void LoraCore::State::change(TimeNs now, LoraOutbox& out) {
  Running& r = *running;
  r.phase = Running::Phase::changing;
  r.quiet_since = now;
  Lora m;
  m.command = r.c;
  m.show = r.fresh;
  m.hide = slots[r.slot].ref;
  out.push(std::move(m));
}

void LoraCore::State::complete(TimeNs now, LoraOutbox& out) {
  const Running r = std::move(*running);
  running.reset();
  LoraAck ack;
  ack.name = r.c.name;
  ack.paused_ns = now - r.start;
  ack.waited_ns = r.quiet_since - r.ready;
  if (r.c.kind == Kind::rotate) {
    standard = r.c.name;
    ++stats.rotated;
  } else {
    Slot& slot = slots[r.slot];
    const Slot old = std::exchange(slot, {});
    if (old.ref.slot != 0) {
      free_memory.push_back(old.ref.slot);
      if (r.preempting) out.push(LoraResume{{}, old.ref, true});
      if (!old.retired && old.name != r.c.name) ack.evicted = old.name;
      if (!old.retired && old.name == standard && (r.c.kind == Kind::unload || old.name != r.c.name)) standard.clear();
    }
    if (r.c.kind == Kind::unload) {
      ++stats.unloaded;
    } else {
      ++stats.loaded;
      stats.replaced += old.ref.slot != 0 ? 1 : 0;
      if (Slot* before = find(r.c.name)) {
        before->retired = true;
        ++stats.retired;
      }
      slot.name = r.c.name;
      slot.ref = r.fresh;
      slot.command = r.id;
      slot.used = ++clock;
      ack.adapter = r.fresh;
      ack.slot = r.slot + 1;
    }
  }
  out.push(LoraAnswer{{}, r.id, std::move(ack), {}, config.replica});
}

void LoraCore::State::fail(ErrorCode code, std::string what, TimeNs now, LoraOutbox& out) {
  const Running r = *running;
  ++stats.failed;
  stats.timed_out += code == ErrorCode::timed_out ? 1 : 0;
  LoraAck ack;
  ack.name = r.c.name;
  ack.users = users();
  ack.waited_ns = now - r.start;
  running.reset();
  if (r.fresh.slot != 0) {
    if (r.phase == Running::Phase::loading)
      abandoned.emplace_back(r.id, r.fresh.slot);
    else
      free_memory.push_back(r.fresh.slot);
  }
  if (r.preempting) out.push(LoraResume{{}, slots[r.slot].ref, false});
  out.push(LoraAnswer{{}, r.id, std::move(ack), Error{code, std::move(what)}, config.replica});
}

// In the order of arrival: what nothing before it concerns is done.
void LoraCore::State::pump(TimeNs now, LoraOutbox& out) {
  std::vector<const Command*> before;
  std::deque<Item> left;
  for (Item& item : queue) {
    if (auto* w = std::get_if<Waiting>(&item)) {
      if (!blocked(*w, before)) {
        bind(*w, now, out);
        continue;
      }
    } else if (auto* c = std::get_if<Command>(&item)) {
      if (!running && before.empty()) {
        start(std::move(*c), now, out);
        continue;
      }
    } else if (!running && left.empty()) {
      out.push(std::get<Drain>(item));
      continue;
    }
    left.push_back(std::move(item));
    if (const auto* c = std::get_if<Command>(&left.back())) before.push_back(c);
  }
  queue = std::move(left);
  arm(now, out);
}

void LoraCore::State::arm(TimeNs, LoraOutbox& out) {
  TimeNs next = 0;
  const auto earlier = [&](TimeNs at) {
    if (at != 0 && (next == 0 || at < next)) next = at;
  };
  if (running && config.fault != LoraFault::never_closes) earlier(running->bound);
  for (const Item& item : queue)
    if (const auto* w = std::get_if<Waiting>(&item)) earlier(w->deadline);
  if (next == 0 || next == armed) return;
  armed = next;
  out.push(SetTimer{next});
}

LoraAck LoraCore::State::list() const {
  LoraAck ack;
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    if (slot.ref.slot != 0 && !(slot.retired && slot.users == 0))
      ack.adapters.push_back({slot.name, i + 1, slot.ref, slot.users, slot.retired, !slot.retired && slot.name == standard});
  }
  return ack;
}

}  // namespace troupe::actors
