// Connections between machines: TLS 1.3 over TCP, with a certificate on both sides, cut into frames (frame.h).
//
// A peer that does not prove, by a certificate of our CA, that it is one of us never gets further than TLS: nobody hears of it.
// There is no way to make an Io without certificates. Any certificate of the CA may listen or connect, and names are not
// compared: the CA must be one that signs nothing else.
//
// Everything has a limit and an answer at it: what does not come to its first frame within `handshake` is closed; past
// max_handshakes the one that has taken longest gives way; past max_connections a new one is closed; a frame past
// max_frame, or one that its handler refuses, ends its connection; so does a peer that leaves more than max_queued bytes unread;
// while more than max_untaken bytes of frames wait for whoever they are for, no more are read.
//
// An Io has one thread, on which handlers are called; a Connection's functions are for any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "actors/link/frame.h"
#include "messages/error.h"

namespace troupe::actors::link {

struct Credentials {        // PEM files
  std::string certificate;  // with its chain
  std::string key;
  std::string ca;
};

struct TransportLimits {
  FrameLimit max_frame = nullptr;                   // has to be set
  std::size_t max_queued = std::size_t{128} << 20;  // bytes that wait for the peer
  std::size_t max_untaken = std::size_t{4} << 20;
  std::uint32_t max_connections = 64;
  std::uint32_t max_handshakes = 64;
  std::chrono::milliseconds handshake{3000};  // from connecting to the first frame
};

class Connection {
 public:
  virtual ~Connection() = default;
  // A whole frame, with its head. False: the connection is closed, or is now, since too much waits to be sent.
  virtual bool send(std::span<const std::uint8_t> frame) = 0;
  // The handler hears why. flush: what was given to send() goes out first, if the peer takes it within a second.
  enum class How : std::uint8_t { at_once, flush };
  virtual void close(Error why, How how) = 0;
  // Of the frames that the handler was given, with their heads, so many bytes are done with. A handler that hands frames on to
  // another thread has to have this called; from any thread.
  virtual void taken(std::size_t bytes) = 0;
  virtual const std::string& peer() const = 0;  // "10.0.0.7:4100", for people
};

// What a connection is for. All on the Io's thread.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void opened(const std::shared_ptr<Connection>& connection) = 0;  // the peer's certificate is good
  // An error ends the connection.
  virtual Result<void> on(const Frame& frame) = 0;
  // Once, and last; also without opened(). io_failed: it broke, or never came to be; closed: the peer ended it, or Io::stop();
  // bad_file: no frames; overloaded: the peer does not read; timed_out: the handshake; or what close() was given.
  virtual void closed(const Error& why) = 0;
};

class Io {
 public:
  // bad_request: one of the three files is not named; bad_file: one of them is not what it should be.
  static Result<std::unique_ptr<Io>> start(const Credentials& credentials, const TransportLimits& limits);
  virtual ~Io() = default;  // stop()

  // A handler for each connection that comes; none: it is closed. Returns the port. io_failed, bad_request (no address).
  using Accept = std::function<std::shared_ptr<Handler>()>;
  virtual Result<std::uint16_t> listen(const std::string& address, std::uint16_t port, Accept accept) = 0;
  // Later the handler hears either opened() or closed().
  virtual void connect(const std::string& host, std::uint16_t port, std::shared_ptr<Handler> handler) = 0;
  // Closes everything and joins the thread; not from a handler.
  virtual void stop() = 0;

  struct Figures {
    std::uint64_t accepted = 0;
    std::uint64_t authenticated = 0;  // of these and of those that we made
    std::uint64_t refused = 0;        // accepted, and closed before their first frame or for one
    std::uint32_t open = 0;           // now
  };
  virtual Figures figures() const = 0;
};

// "127.0.0.1:4100", "[::1]:4100", "node-a:4100". bad_request.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
Result<HostPort> parse_host_port(const std::string& text);

}  // namespace troupe::actors::link
