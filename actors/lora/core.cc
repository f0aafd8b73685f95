#include "actors/lora/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/lora/state.h"

namespace troupe::actors {

namespace {

Admit parked(Admit admit, TimeNs waited) {
  admit.parked = true;
  admit.waited += waited;
  return admit;
}

}  // namespace

LoraCore::LoraCore(const LoraConfig& config, const ModelInfo& model) : s_(std::make_unique<State>()) {
  s_->config = config;
  s_->slots.resize(model.max_loras);
  for (std::uint32_t i = model.max_loras + 1; i > 0; --i) s_->free_memory.push_back(i);
}
LoraCore::~LoraCore() = default;

const LoraStats& LoraCore::stats() const { return s_->stats; }

std::uint32_t LoraCore::waiting() const {
  return static_cast<std::uint32_t>(
      std::count_if(s_->queue.begin(), s_->queue.end(), [](const auto& item) { return std::holds_alternative<State::Waiting>(item); }));
}

bool LoraCore::busy() const {
  return s_->running ||
         std::any_of(s_->queue.begin(), s_->queue.end(), [](const auto& item) { return std::holds_alternative<State::Command>(item); });
}

void LoraCore::on(const Admit& m, TimeNs now, LoraOutbox& out) {
  State::Waiting w{m, now, 0};
  if (m.request->deadline) w.deadline = now + *m.request->deadline - m.waited;
  s_->queue.push_back(std::move(w));
  s_->pump(now, out);
}

void LoraCore::on(const CancelRequest& m, TimeNs now, LoraOutbox& out) {
  auto& queue = s_->queue;
  const auto it = std::find_if(queue.begin(), queue.end(), [&](const State::Item& item) {
    const auto* w = std::get_if<State::Waiting>(&item);
    return w != nullptr && w->admit.id == m.id;
  });
  if (it != queue.end()) {
    const State::Waiting w = std::get<State::Waiting>(std::move(*it));
    queue.erase(it);
    out.push(parked(w.admit, now - w.since));
  }
  out.push(m);
  s_->pump(now, out);
}

void LoraCore::on(const Drain& m, TimeNs now, LoraOutbox& out) {
  s_->draining = true;
  s_->queue.push_back(m);
  s_->pump(now, out);
}

void LoraCore::on(const Ended& m, TimeNs now, LoraOutbox& out) {
  State& s = *s_;
  for (const Placed& p : m.requests) {
    const auto it = s.bound.find(p.id.generation);
    if (it == s.bound.end()) continue;
    const State::Bound b = it->second;
    s.bound.erase(it);
    if (b.slot != State::kNone && s.slots[b.slot].ref == b.ref) --s.slots[b.slot].users;
  }
  if (s.running && s.running->phase == State::Running::Phase::waiting) s.proceed(now, out);
  s.pump(now, out);
}

void LoraCore::on(const LoraSubmit& m, TimeNs now, LoraOutbox& out) {
  State& s = *s_;
  const auto answer = [&](LoraAck ack, Error error) { out.push(LoraAnswer{{}, m.id, std::move(ack), std::move(error), s.config.replica}); };
  if (m.command.kind == LoraCommand::Kind::list) return answer(s.list(), {});  // nothing must be quiet for it
  LoraAck ack;
  ack.name = m.command.name;
  const auto waiting =
      std::count_if(s.queue.begin(), s.queue.end(), [](const State::Item& item) { return std::holds_alternative<State::Command>(item); });
  if (s.draining) return answer(std::move(ack), Error{ErrorCode::closed, "the runtime is draining and takes no commands"});
  if (waiting >= s.config.max_commands)
    return answer(std::move(ack), Error{ErrorCode::overloaded, fmt::format("{} LoRA commands wait already; try again later", waiting)});
  s.queue.push_back(State::Command{m.id, m.command, m.image});
  s.pump(now, out);
}

void LoraCore::on(const AdapterLoaded& m, TimeNs now, LoraOutbox& out) {
  State& s = *s_;
  const auto late = std::find_if(s.abandoned.begin(), s.abandoned.end(), [&](const auto& a) { return a.first == m.id; });
  if (late != s.abandoned.end()) {
    s.free_memory.push_back(late->second);
    s.abandoned.erase(late);
  } else if (s.running && s.running->id == m.id && s.running->phase == State::Running::Phase::loading) {
    s.running->phase = State::Running::Phase::waiting;
    if (m.error.code != ErrorCode::none) {
      s.fail(m.error.code == ErrorCode::rank_too_large ? m.error.code : ErrorCode::bad_adapter, m.error.what, now, out);
    } else {
      s.proceed(now, out);
    }
  }
  s.pump(now, out);
}

void LoraCore::on(const LoraReply& m, TimeNs now, LoraOutbox& out) {
  State& s = *s_;
  if (!s.running || s.running->phase != State::Running::Phase::changing) return;
  if (m.error.code == ErrorCode::none)
    s.complete(now, out);
  else
    s.fail(s.running->withdrawn ? ErrorCode::timed_out : m.error.code, m.error.what, now, out);
  s.pump(now, out);
}

void LoraCore::on(const Tick&, TimeNs now, LoraOutbox& out) {
  State& s = *s_;
  s.armed = 0;
  if (s.running && s.running->bound <= now && s.config.fault != LoraFault::never_closes) {
    State::Running& r = *s.running;
    const bool preempts = r.c.at_bound == LoraCommand::AtBound::preempt && s.config.policy == LoraPolicy::scoped;
    if (r.phase == State::Running::Phase::changing) {
      if (!std::exchange(r.withdrawn, true)) {
        ++s.stats.withdrawn;
        Lora withdraw;
        withdraw.command = r.c;
        withdraw.withdraw = true;
        out.push(std::move(withdraw));
      }
      r.bound = now + s.config.lease;
    } else if (r.phase == State::Running::Phase::waiting && preempts) {
      r.preempting = true;
      ++s.stats.preempted;
      r.bound = now + s.config.lease;
      out.push(LoraHold{{}, s.slots[r.slot].ref, r.bound});
      s.change(now, out);
    } else {
      s.fail(ErrorCode::timed_out,
             fmt::format("{} did not become quiet: {} users were left after {} ms", r.c.name, s.users(), (now - r.start) / 1'000'000), now,
             out);
    }
  }
  for (auto it = s.queue.begin(); it != s.queue.end();) {
    const auto* w = std::get_if<State::Waiting>(&*it);
    if (w == nullptr || w->deadline == 0 || w->deadline > now) {
      ++it;
      continue;
    }
    out.push(parked(w->admit, now - w->since));
    it = s.queue.erase(it);
  }
  s.pump(now, out);
}

void LoraCore::on(const FetchAdapter& m, TimeNs, LoraOutbox& out) {
  State& s = *s_;
  State::Slot* slot = s.find(m.name);
  const bool leaving = slot != nullptr && s.running && s.running->phase == State::Running::Phase::changing &&
                       s.running->slot == static_cast<std::uint32_t>(slot - s.slots.data());
  if (slot == nullptr || leaving)
    return out.push(AdapterFetched{
        {}, m.id, {}, Error{ErrorCode::unknown_adapter, fmt::format("no adapter is called \"{}\"", m.name)}, s.config.replica});
  ++slot->reads;
  s.reads.push_back({m.id, slot->ref});
  out.push(ReadAdapter{{}, m.id, slot->ref.slot});
}

void LoraCore::on(const AdapterRead& m, TimeNs now, LoraOutbox& out) {
  State& s = *s_;
  const auto read = std::find_if(s.reads.begin(), s.reads.end(), [&](const State::Read& r) { return r.id == m.id; });
  if (read == s.reads.end()) return;
  for (State::Slot& slot : s.slots)
    if (slot.ref == read->ref) --slot.reads;
  s.reads.erase(read);
  out.push(AdapterFetched{{}, m.id, m.image, m.error, s.config.replica});
  if (s.running && s.running->phase == State::Running::Phase::waiting) s.proceed(now, out);
  s.pump(now, out);
}

std::string LoraCore::check() const {
  const State& s = *s_;
  std::vector<std::uint32_t> users(s.slots.size(), 0), memory(s.slots.size() + 2, 0);
  for (const auto& [generation, b] : s.bound)  // sums only: their order does not matter
    if (b.slot != State::kNone && s.slots[b.slot].ref == b.ref) ++users[b.slot];
  for (std::size_t i = 0; i < s.slots.size(); ++i) {
    const State::Slot& slot = s.slots[i];
    if (users[i] != slot.users) return fmt::format("R9: adapter slot {} counts {} users and has {}", i + 1, slot.users, users[i]);
    if (slot.ref.slot != 0) ++memory[slot.ref.slot];
    for (std::size_t k = 0; k < i; ++k)
      if (!slot.name.empty() && !slot.retired && !s.slots[k].retired && s.slots[k].name == slot.name)
        return "R9: two adapters are called " + slot.name;
  }
  for (const std::uint32_t m : s.free_memory) ++memory[m];
  for (const auto& [id, m] : s.abandoned) ++memory[m];
  if (s.running && s.running->fresh.slot != 0) ++memory[s.running->fresh.slot];
  for (std::size_t i = 1; i < memory.size(); ++i)
    if (memory[i] != 1) return fmt::format("R9: adapter memory {} has {} owners", i, memory[i]);
  return {};
}

}  // namespace troupe::actors
