// Every message that crosses a mailbox. The type is the protocol: an actor's interface is the list of types it takes.
//
// All are one-way; what belongs together carries a ticket, a sequence or a request id. Each has a TraceCtx and a
// one-line label. The hot path (DESIGN §5.3), in order, for one step:
//   Launch -> Enqueue -> Watch -> EventDone -> Completed -> Settled, with Accepted beside Enqueue and Deliver after
//   the next Launch: eight messages whatever the batch; rows that the host samples add Sample and Sampled.
//
// A message between the dispatcher and a replica names the replica, whichever of the two sends it: what comes from one that
// is fenced, or belongs to an attempt that is over, is counted and dropped (R5).
#pragma once

#include "messages/model_info.h"
#include "messages/protocol/device.h"
#include "messages/protocol/lora.h"
#include "messages/protocol/replicas.h"
#include "messages/protocol/requests.h"
#include "messages/protocol/router.h"
#include "messages/protocol/spill.h"
