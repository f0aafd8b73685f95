// A node: a process that has replicas for runtimes on other machines (actors/link/). It listens for links by TLS with a
// certificate on both sides; it does not run without. A replica belongs to one runtime at a time, and outlives it.
//
// Every function may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/link/transport.h"
#include "actors/runtime.h"

namespace troupe {

struct NodeOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  // 0 takes a free one
  std::string name;        // for people; empty: address:port
  actors::link::Credentials credentials;
  actors::link::TransportLimits limits{};
  RuntimeOptions runtime{};  // of its replicas; of the options of a dispatcher max_live only: the requests of one runtime
};

class Node {
 public:
  // Errors: what a source says; bad_request: no sources, a certificate, key or CA that is not named; bad_file: what they are;
  // io_failed: it cannot listen there.
  static Result<std::unique_ptr<Node>> start(const NodeOptions& options, std::vector<ReplicaSource> sources);
  ~Node();  // stop()

  std::uint16_t port() const;
  actors::link::Io::Figures figures() const;  // of its connections
  std::vector<DeviceFacts> facts() const;     // of its replicas that are up
  // Tells runtimes that it goes, whereupon they take its requests elsewhere, and gives everything back. Error: what was not.
  Result<void> stop();

 private:
  struct Impl;
  explicit Node(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
