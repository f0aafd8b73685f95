// The list of every message of messages/protocol.h that crosses a mailbox. A type that is added here is known to CAF, to
// the recorder of messages and to its reader: that one line is all.
#pragma once

#include "messages/protocol.h"

#define TROUPE_MESSAGES(X) \
  X(Submit)                \
  X(SubmitReply)           \
  X(Admit)                 \
  X(Cancel)                \
  X(CancelRequest)         \
  X(CancelReply)           \
  X(Ended)                 \
  X(Drain)                 \
  X(Drained)               \
  X(Halt)                  \
  X(Reclaim)               \
  X(Reclaimed)             \
  X(EndRequests)           \
  X(ReplicaLost)           \
  X(AskReport)             \
  X(ReplicaReport)         \
  X(StartReplica)          \
  X(StopReplica)           \
  X(ReplicaUp)             \
  X(ReplicaDown)           \
  X(DrainReplica)          \
  X(UndrainReplica)        \
  X(ReplicaAnswer)         \
  X(AskReplicas)           \
  X(ReplicaList)           \
  X(Tick)                  \
  X(Open)                  \
  X(Opened)                \
  X(Saved)                 \
  X(Launch)                \
  X(Accepted)              \
  X(Await)                 \
  X(Settled)               \
  X(Apply)                 \
  X(Applied)               \
  X(LoraSubmit)            \
  X(LoraAnswer)            \
  X(LoraBound)             \
  X(FetchAdapter)          \
  X(AdapterFetched)        \
  X(ReadAdapter)           \
  X(AdapterRead)           \
  X(LoadAdapter)           \
  X(AdapterLoaded)         \
  X(LoraHold)              \
  X(LoraResume)            \
  X(ChangeTable)           \
  X(TableChanged)          \
  X(Lora)                  \
  X(LoraReply)             \
  X(Teardown)              \
  X(TornDown)              \
  X(RingReady)             \
  X(Enqueue)               \
  X(Watch)                 \
  X(EventDone)             \
  X(Completed)             \
  X(RecordEvent)           \
  X(EventRecorded)         \
  X(CopyBlocks)            \
  X(CopyDone)              \
  X(WriteState)            \
  X(StateWritten)          \
  X(ReadState)             \
  X(StateRead)             \
  X(DropState)             \
  X(Sample)                \
  X(Sampled)               \
  X(Deliver)               \
  X(Delivered)

namespace troupe {

// Calls f.template operator()<M>("M") for each of them.
template <class F>
void for_each_message(F&& f) {
#define TROUPE_CALL(M) f.template operator()<M>(#M);
  TROUPE_MESSAGES(TROUPE_CALL)
#undef TROUPE_CALL
}

}  // namespace troupe
