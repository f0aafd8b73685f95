// Makes the inspection of messages/ work with CAF's serializers, and registers every type of the protocol.
#pragma once

#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>

namespace caf {

// What messages/inspect_std.h asks of an inspector that loads; found by argument-dependent lookup.
inline error inspect_failed(deserializer&) { return sec::invalid_argument; }

}  // namespace caf

namespace troupe::actors {

// Registers every message for networking and whole-message serialization.
void add_message_types(caf::actor_system_config& config);

}  // namespace troupe::actors
