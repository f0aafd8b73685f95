// Makes the inspection of messages/ work with CAF's serializers, and registers every type of the protocol.
#pragma once

#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>

#include "messages/protocol.h"

namespace caf {

// What messages/inspect_std.h asks of an inspector that loads; found by argument-dependent lookup.
inline error inspect_failed(deserializer&) { return sec::invalid_argument; }

}  // namespace caf

namespace troupe::actors {

// Calls f.template operator()<M>("M") for every message of messages/protocol.h that crosses a mailbox.
template <class F> void for_each_message(F&& f) {
#define TROUPE_MESSAGE(M) f.template operator()<M>(#M)
  TROUPE_MESSAGE(Submit);
  TROUPE_MESSAGE(SubmitReply);
  TROUPE_MESSAGE(Admit);
  TROUPE_MESSAGE(Cancel);
  TROUPE_MESSAGE(CancelRequest);
  TROUPE_MESSAGE(CancelReply);
  TROUPE_MESSAGE(Ended);
  TROUPE_MESSAGE(Drain);
  TROUPE_MESSAGE(Drained);
  TROUPE_MESSAGE(Halt);
  TROUPE_MESSAGE(Tick);
  TROUPE_MESSAGE(Open);
  TROUPE_MESSAGE(Opened);
  TROUPE_MESSAGE(Saved);
  TROUPE_MESSAGE(Launch);
  TROUPE_MESSAGE(Accepted);
  TROUPE_MESSAGE(Await);
  TROUPE_MESSAGE(Settled);
  TROUPE_MESSAGE(Apply);
  TROUPE_MESSAGE(Applied);
  TROUPE_MESSAGE(LoraSubmit);
  TROUPE_MESSAGE(LoraAnswer);
  TROUPE_MESSAGE(LoadAdapter);
  TROUPE_MESSAGE(AdapterLoaded);
  TROUPE_MESSAGE(LoraHold);
  TROUPE_MESSAGE(LoraResume);
  TROUPE_MESSAGE(ChangeTable);
  TROUPE_MESSAGE(TableChanged);
  TROUPE_MESSAGE(Lora);
  TROUPE_MESSAGE(LoraReply);
  TROUPE_MESSAGE(Teardown);
  TROUPE_MESSAGE(TornDown);
  TROUPE_MESSAGE(RingReady);
  TROUPE_MESSAGE(Enqueue);
  TROUPE_MESSAGE(Watch);
  TROUPE_MESSAGE(EventDone);
  TROUPE_MESSAGE(Completed);
  TROUPE_MESSAGE(CopyBlocks);
  TROUPE_MESSAGE(CopyDone);
  TROUPE_MESSAGE(WriteState);
  TROUPE_MESSAGE(StateWritten);
  TROUPE_MESSAGE(ReadState);
  TROUPE_MESSAGE(StateRead);
  TROUPE_MESSAGE(DropState);
  TROUPE_MESSAGE(Sample);
  TROUPE_MESSAGE(Sampled);
  TROUPE_MESSAGE(Deliver);
#undef TROUPE_MESSAGE
}

// Registers them for networking and whole-message serialization.
inline void add_message_types(caf::actor_system_config& config) {
  for_each_message([&]<class M>(const char* name) { config.add_message_type<M>(name); });
}

}  // namespace troupe::actors
