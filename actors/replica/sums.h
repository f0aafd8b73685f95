// Figures of several replicas, or of several lives of one, as those of one.
#pragma once

#include "actors/scheduler/core.h"
#include "messages/facts.h"

namespace troupe::actors {

SchedulerStats sum(const SchedulerStats& a, const SchedulerStats& b);
DeviceFacts sum(const DeviceFacts& a, const DeviceFacts& b);

}  // namespace troupe::actors
