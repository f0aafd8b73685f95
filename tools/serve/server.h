// The server: listens, gives each connection a Session, and stops in order. HTTP runs on one I/O thread; parsing,
// tokenizing and submitting on a few workers; nothing of it on the runtime's threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "actors/runtime.h"
#include "device/models/load.h"
#include "tools/serve/options.h"

namespace troupe::serve {

class Server {
 public:
  // The runtime outlives the server. Errors: io_failed when it cannot listen there; bad_file for a certificate or key.
  static Result<std::unique_ptr<Server>> start(Runtime& runtime, device::TextSide text, const ServeOptions& options);
  ~Server();  // stop()

  std::uint16_t port() const;

  // Takes no more connections or requests, lets what runs end within options.drain_limit, stops the runtime, which ends
  // the rest, and closes. False: something had to be ended.
  bool stop();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::serve
