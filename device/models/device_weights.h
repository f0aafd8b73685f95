// A model's weights in the memory of a device that the host does not reach.
#pragma once

#include "device/models/device_memory.h"
#include "device/models/llama_forward.h"
#include "device/models/model_config.h"
#include "messages/error.h"

namespace troupe::device {

// Copies what `host` points to into one area of `memory`, as it is stored, every tensor at a multiple of 256 bytes; the result
// points there and needs `host` no longer. Waits for the copies. Errors: the driver's.
Result<LlamaWeights> on_device(const LlamaWeights& host, const ModelConfig& config, DeviceMemory& memory, Driver& driver);

}  // namespace troupe::device
