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


inline constexpr ReplicaRef kRef{2, 5}, kLocal{0, 1};

inline ModelInfo model() {
  ModelInfo m;
  m.name = "tiny";
  m.arithmetic_id = "host/avx2/exact";
  m.vocab_size = 100;
  m.context_length = 64;
  m.kv_blocks = 8;
  m.n_slots = 4;
  return m;
}
inline RemoteConfig remote_config() {
  RemoteConfig c;
  c.name = "node-a/0";
  c.owner = 42;
  c.heartbeat = 100 * kMs;
  c.silence = 300 * kMs;
  c.patience = 1000 * kMs;
  c.model = model();
  c.tokens = 9;
  return c;
}
inline Welcome welcome() {
  Welcome w;
  w.model = model();
  w.tokens = 9;
  return w;
}

struct Host {
  explicit Host(std::uint32_t adapters = 0)
      : core([&] {
          HostConfig c;
          c.node = "node-a";
          c.max_live = 3;
          c.ref = kLocal;
          c.model = model();
          c.model.max_loras = adapters;
          c.tokens = 9;
          return c;
        }()) {}
  HostCore core;
  HostOutbox out;
  TimeNs timer = 0;
  template <class M>
  Texts on(const M& m, TimeNs now = 0) {
    core.on(m, now, out);
    return drained(out, &timer);
  }
  Texts hears(std::uint32_t connection, LinkMessage m, TimeNs now = 0) {
    core.on(connection, std::move(m), now, out);
    return drained(out, &timer);
  }
  static Hello hello(std::uint64_t owner, ReplicaRef ref) {
    Hello h;
    h.owner = owner;
    h.ref = ref;
    h.heartbeat = 100 * kMs;
    h.silence = 300 * kMs;
    return h;
  }
  Texts ends(std::uint64_t client, std::uint64_t generation) {
    Ended m;
    m.requests = {{{client, generation}, 0}};
    m.replica = kLocal;
    return on(m);
  }
};

}  // namespace troupe::actors::link
