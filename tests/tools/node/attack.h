// What a node has to withstand: connections of garbage, of TLS without or with a wrong certificate, and, from a peer whose
// certificate is good, frames that were mutated, that announce hundreds of megabytes, or that never end. Seeded; blocking.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "actors/link/transport.h"

namespace troupe::actors::link {

struct AttackPlan {
  std::uint16_t port = 0;  // on 127.0.0.1
  Credentials good;        // of the node's CA
  Credentials stranger;    // of another one
  std::uint64_t connections = 1000;
  std::uint64_t seed = 1;
  std::uint32_t flood_frames = 2000;  // of an endless write, until it is cut off
};

struct AttackReport {
  std::map<std::string, std::uint64_t> made;  // connections, by kind
  std::uint64_t frames = 0;                   // sent with a good certificate
  std::uint64_t failed = 0;                   // connections that could not be made
};

AttackReport attack(const AttackPlan& plan);

// Resident megabytes of a process; 0 = it is gone.
std::uint64_t resident_mib(int pid);

}  // namespace troupe::actors::link
