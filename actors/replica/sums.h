// Figures of several replicas, or of several lives of one, as those of one.
#pragma once

#include "actors/scheduler/core.h"
#include "messages/error.h"
#include "messages/facts.h"
#include "messages/model_info.h"

namespace troupe::actors {

SchedulerStats sum(const SchedulerStats& a, const SchedulerStats& b);
DeviceFacts sum(const DeviceFacts& a, const DeviceFacts& b);
// The least that both can do. bad_request: they are different models.
Result<ModelInfo> common(ModelInfo a, const ModelInfo& b);

}  // namespace troupe::actors
