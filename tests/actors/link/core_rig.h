// Both cores of a link by hand, with what they put out as texts.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "actors/link/host_core.h"
#include "actors/link/remote_core.h"
#include "tests/messages/samples.h"

namespace troupe::actors::link {

inline constexpr TimeNs kMs = 1'000'000;

inline std::string text(const Connect& m) { return "connect " + std::to_string(m.connection); }
inline std::string text(const Disconnect& m) { return "disconnect " + std::to_string(m.connection); }
inline std::string text(const StartReplica& m) { return "StartReplica " + label(m.replica); }
inline std::string text(const StopReplica& m) { return "StopReplica " + label(m.replica); }
inline std::string text(const Hello& m) { return "Hello " + label(m.ref); }
inline std::string text(const Welcome&) { return "Welcome"; }
inline std::string text(const Refused& m) { return std::string("Refused ") + name(m.error.code); }
inline std::string text(const Heartbeat&) { return "Heartbeat"; }
inline std::string text(const ReplicaUp& m) { return "ReplicaUp " + label(m.replica); }
inline std::string text(const ReplicaDown& m) { return "ReplicaDown " + label(m.replica) + " " + name(m.error.code); }
inline std::string text(const ReplicaLost& m) { return "ReplicaLost " + label(m.replica) + " " + name(m.error.code); }
inline std::string text(const Admit& m) { return "Admit " + label(m.id) + " " + label(m.replica); }
inline std::string text(const CancelRequest& m) { return "CancelRequest " + label(m.id) + " " + label(m.replica); }
inline std::string text(const CancelReply& m) { return "CancelReply " + label(m.id) + " " + label(m.replica); }
inline std::string text(const Ended& m) {
  std::string out = "Ended";
  for (const Placed& p : m.requests) out += " " + label(p.id);
  return out + " " + label(m.replica);
}
inline std::string text(const Drained& m) { return "Drained " + label(m.replica); }
inline std::string text(const Deliver&) { return "Deliver"; }
inline std::string text(const ReplicaReport& m) { return "ReplicaReport " + label(m.replica); }
inline std::string text(const AskReport& m) { return "AskReport " + label(m.replica); }
inline std::string text(const LoraAnswer& m) { return "LoraAnswer " + std::to_string(m.id) + " " + label(m.replica); }
inline std::string text(const LoraSubmit& m) { return "LoraSubmit " + std::to_string(m.id) + " " + label(m.replica); }
inline std::string text(const LoraBound& m) { return "LoraBound " + label(m.replica); }
inline std::string text(const AdapterFetched& m) { return "AdapterFetched " + label(m.replica); }
inline std::string text(const FetchAdapter& m) { return "FetchAdapter " + label(m.replica); }
inline std::string text(const Drain& m) { return "Drain " + label(m.replica); }
inline std::string text(const Transmit& m) {
  return "> " + std::visit([](const auto& x) { return text(x); }, m.message);
}

// What was put out, in order, timers apart.
template <class Box>
std::vector<std::string> drained(Box& out, TimeNs* timer = nullptr) {
  std::vector<std::string> texts;
  out.drain([&]<class M>(M&& m) {
    if constexpr (std::is_same_v<std::decay_t<M>, SetTimer>) {
      if (timer != nullptr) *timer = m.at;
    } else {
      texts.push_back(text(m));
    }
  });
  return texts;
}

using Texts = std::vector<std::string>;

inline Admit admit(std::uint64_t client, std::uint64_t generation, ReplicaRef replica) {
  Request r;
  r.client = client;
  r.prompt = {1, 2};
  r.stop.max_tokens = 4;
  Admit m;
  m.id = {client, generation};
  m.request = Shared<Request>::of(r);
  m.replica = replica;
  return m;
}

}  // namespace troupe::actors::link
