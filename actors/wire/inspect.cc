#include "actors/wire/inspect.h"

#include "messages/registry.h"

namespace troupe::actors {

// The serializers of all messages are instantiated here, and nowhere else: that takes a compiler ten seconds.
void add_message_types(caf::actor_system_config& config) {
  for_each_message([&]<class M>(const char* name) { config.add_message_type<M>(name); });
}

}  // namespace troupe::actors
