// Replicas on other machines, for an embedder: which nodes, by which certificate. Knows no CAF.
//
//   auto sources = link::node_sources({"10.0.0.7:4100"}, {cert, key, ca}, {});
//   auto runtime = Runtime::start(options, std::move(sources.value()));
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/link/transport.h"
#include "actors/runtime.h"

namespace troupe {

// A replica that a node has. Copies share the transport, which lives as long as one of them.
struct RemoteReplica {
  std::shared_ptr<actors::link::Io> io;
  actors::link::HostPort node;
  std::uint32_t replica = 0;         // the node's number for it
  std::optional<ModelInfo> model{};  // none: the node did not answer when it was asked
  std::uint64_t tokens = 0;          // token_hash() of its vocabulary
  std::chrono::nanoseconds heartbeat{}, silence{};
};

namespace actors::link {

struct LinkOptions {
  // Both ends send something within that time, and one that hears nothing for `silence` takes the other for gone: it notices
  // within silence + heartbeat.
  std::chrono::nanoseconds heartbeat = std::chrono::milliseconds(500);
  std::chrono::nanoseconds silence = std::chrono::seconds(3);
  std::chrono::nanoseconds patience = std::chrono::seconds(5);  // for nodes to say what they have
};

// Asks each node ("host:port") what it has: a source for each of its replicas, named "host:port/host:0". A node that does not
// answer is taken to have one, which the runtime tries to reach later, as it does with one that was lost.
// Errors: bad_request (no address; a certificate, key or CA that is not named; absurd times), bad_file (what they are).
Result<std::vector<ReplicaSource>> node_sources(const std::vector<std::string>& nodes, const Credentials& credentials,
                                                const LinkOptions& options);

}  // namespace actors::link
}  // namespace troupe
