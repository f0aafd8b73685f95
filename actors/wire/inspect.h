// Makes the inspection of messages/ work with CAF's serializers, and registers every type of the protocol.
#pragma once

#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>

#include "messages/registry.h"

namespace caf {

// What messages/inspect_std.h asks of an inspector that loads; found by argument-dependent lookup.
inline error inspect_failed(deserializer&) { return sec::invalid_argument; }

}  // namespace caf

namespace troupe::actors {

// Registers every message for networking and whole-message serialization.
inline void add_message_types(caf::actor_system_config& config) {
  for_each_message([&]<class M>(const char* name) { config.add_message_type<M>(name); });
}

}  // namespace troupe::actors
