// The edge between a connection and its actor: what the transport's thread hears goes to the actor as messages, and what the
// actor's core puts out goes to the connection as frames. Decoding is done on the transport's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "actors/link/codec.h"
#include "actors/link/remote_core.h"
#include "actors/link/transport.h"
#include "actors/wire.h"

namespace troupe::actors::link {

struct LinkUp {
  std::uint32_t number = 0;  // of the connection, as its actor knows it
  std::shared_ptr<Connection> connection;
};
struct LinkSaid {
  std::uint32_t number = 0;
  LinkMessage message;
  std::size_t bytes = 0;  // of its frame
};
struct LinkDown {
  std::uint32_t number = 0;
  Error why;
};

// The connections of one actor, which alone uses it.
class Wires {
 public:
  void add(const LinkUp& m) { open_[m.number].connection = m.connection; }
  void remove(std::uint32_t number) { open_.erase(number); }
  void taken(const LinkSaid& m) {
    if (const auto it = open_.find(m.number); it != open_.end()) it->second.connection->taken(m.bytes);
  }
  void transmit(const Transmit& m) {
    const auto it = open_.find(m.connection);
    if (it == open_.end()) return;
    std::visit([&](const auto& message) { (void)it->second.connection->send(it->second.writer.frame(message)); }, m.message);
  }
  void disconnect(const Disconnect& m) {
    const auto it = open_.find(m.connection);
    if (it == open_.end()) return;
    it->second.connection->close(m.why, Connection::How::flush);
    open_.erase(it);
  }
  template <class M>
  void say_to_all(const M& message) {
    for (auto& [number, wire] : open_) (void)wire.connection->send(wire.writer.frame(message));
  }
  void close_all(const Error& why) {
    for (auto& [number, wire] : std::exchange(open_, {})) wire.connection->close(why, Connection::How::flush);
  }

 private:
  struct Wire {
    std::shared_ptr<Connection> connection;
    FrameWriter writer;
  };
  std::map<std::uint32_t, Wire> open_;
};

// Bytes that a message takes on the wire at most fit its frame; an adapter may be larger than that.
inline bool fits(const Shared<AdapterImage>& image) { return !image || image->bytes.size() < kMostAdapterBytes - 4096; }

}  // namespace troupe::actors::link

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::link::LinkUp)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::link::LinkSaid)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::link::LinkDown)
