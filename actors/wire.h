// The one header that knows the CAF generation (0.17.6): typed interfaces and registration of every message, pooled
// mailbox elements, the tap through which every actor sends, answers that cannot be lost, timers, the shell's common
// part, and the control thread's scheduler. A move to another CAF is a change here and in what this includes.
#pragma once

#include "actors/wire/answer.h"
#include "actors/wire/control_thread.h"
#include "actors/wire/element.h"
#include "actors/wire/inspect.h"
#include "actors/wire/interfaces.h"
#include "actors/wire/post.h"
#include "actors/wire/shell.h"
#include "actors/wire/timer.h"
