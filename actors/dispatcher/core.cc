#include "actors/dispatcher/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace troupe::actors {
namespace {

// How long a client that was refused for load should wait: about the time in which some request ends, within these.
constexpr TimeNs kShortestWait = 100'000'000;
constexpr TimeNs kLongestWait = 60'000'000'000;

}  // namespace

struct DispatcherCore::State {
  DispatcherConfig config;
  ModelInfo model;
  std::uint64_t generation = 0;                           // of the last accepted request
  std::unordered_map<std::uint64_t, std::uint64_t> live;  // client -> generation; looked up, never walked
  std::deque<std::uint64_t> ended;                        // clients whose last request has ended; at most max_live
  std::unordered_set<std::uint64_t> ended_set;
  TimeNs last_end = 0;  // when requests ended last, or the first was accepted
  TimeNs pace = 0;      // between two ends: of the last few, the recent ones more
  bool draining = false;
  bool drained = false;

  void keep_pace(TimeNs now, std::size_t n) {
    pace += ((now - last_end) / static_cast<TimeNs>(n) - pace) / 4;
    last_end = now;
  }
  // Nothing has ended for longer than the pace says: then it is out of date.
  TimeNs retry_after(TimeNs now) const { return std::clamp(std::max(pace, now - last_end), kShortestWait, kLongestWait); }
  void forget_ended(std::uint64_t client) {
    if (ended_set.erase(client) == 0) return;
    for (auto it = ended.begin(); it != ended.end(); ++it) {
      if (*it == client) {
        ended.erase(it);
        return;
      }
    }
  }
  void remember_ended(std::uint64_t client) {
    forget_ended(client);
    ended.push_back(client);
    ended_set.insert(client);
    if (ended.size() > config.max_live) {
      ended_set.erase(ended.front());
      ended.pop_front();
    }
  }
  SubmitReply refuse(Error error, TimeNs retry_after = 0) const { return SubmitReply{{}, {}, std::move(error), retry_after}; }
  SubmitReply submit(const Submit& m, TimeNs now, DispatcherOutbox& out);
};

DispatcherCore::DispatcherCore(const DispatcherConfig& config, const ModelInfo& model) : s_(new State) {
  s_->config = config;
  s_->model = model;
}
DispatcherCore::~DispatcherCore() = default;

SubmitReply DispatcherCore::State::submit(const Submit& m, TimeNs now, DispatcherOutbox& out) {
  if (draining) return refuse(Error{ErrorCode::closed, "the runtime is draining and takes no new requests"});
  if (!m.request) return refuse(Error{ErrorCode::bad_request, "the submission holds no request"});
  const Request& request = *m.request;
  if (Error e = validate(request, model); e.code != ErrorCode::none) return refuse(std::move(e));
  if (live.count(request.client) != 0) {
    return refuse(Error{ErrorCode::bad_request,
                        fmt::format("client id {} has a live request; wait for its end, cancel it, or use another id", request.client)});
  }
  if (live.size() >= config.max_live) {
    return refuse(Error{ErrorCode::overloaded, fmt::format("{} requests are live, which is the limit; try again later", live.size())},
                  retry_after(now));
  }
  const RequestId id{request.client, ++generation};
  forget_ended(request.client);
  if (live.empty()) last_end = now;
  live.emplace(request.client, id.generation);
  out.push(Admit{{}, id, m.request, request.sampling.seed ? *request.sampling.seed : m.drawn_seed});
  return SubmitReply{{}, id, {}, 0};
}

void DispatcherCore::on(const Submit& m, TimeNs now, DispatcherOutbox& out) {
  SubmitReply reply = s_->submit(m, now, out);
  out.push(std::move(reply));
}

void DispatcherCore::on(const Cancel& m, TimeNs, DispatcherOutbox& out) {
  if (const auto it = s_->live.find(m.client); it != s_->live.end()) {
    out.push(CancelRequest{{}, RequestId{m.client, it->second}});
    return;
  }
  const bool known = s_->ended_set.count(m.client) != 0;
  out.push(CancelReply{{}, RequestId{m.client, 0}, known ? CancelOutcome::already_finished : CancelOutcome::not_found, 0});
}

void DispatcherCore::on(const CancelReply& m, TimeNs, DispatcherOutbox& out) { out.push(m); }

void DispatcherCore::on(const LoraSubmit& m, TimeNs, DispatcherOutbox& out) {
  if (s_->model.max_loras > 0) return out.push(m);
  LoraAnswer refused;
  refused.id = m.id;
  refused.ack.name = m.command.name;
  refused.error = Error{ErrorCode::unsupported, "the model was loaded without room for adapters: load it with max_loras above 0"};
  out.push(std::move(refused));
}

void DispatcherCore::on(const LoraAnswer& m, TimeNs, DispatcherOutbox& out) { out.push(m); }

void DispatcherCore::on(const Ended& m, TimeNs now, DispatcherOutbox& out) {
  if (s_->model.max_loras > 0) out.push(m);
  std::size_t ended = 0;
  for (const auto& [id, attempt] : m.requests) {
    const auto it = s_->live.find(id.client);
    if (it == s_->live.end() || it->second != id.generation) continue;
    s_->live.erase(it);
    s_->remember_ended(id.client);
    ++ended;
  }
  if (ended > 0) s_->keep_pace(now, ended);
}

void DispatcherCore::on(const Drain& m, TimeNs, DispatcherOutbox& out) {
  if (s_->drained) {
    out.push(Drained{});
  } else if (!std::exchange(s_->draining, true)) {
    out.push(m);
  }
}

void DispatcherCore::on(const Drained& m, TimeNs, DispatcherOutbox& out) {
  s_->drained = true;
  out.push(m);
}

std::uint32_t DispatcherCore::live() const { return static_cast<std::uint32_t>(s_->live.size()); }

}  // namespace troupe::actors
