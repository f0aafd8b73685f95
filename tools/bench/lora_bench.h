// What LoRA commands cost those whom they do not concern: the inter-token gaps of a request of the base model while others come
// and go and adapters are loaded, rotated to, loaded again under their name and unloaded. Blocks until all is done.
#pragma once

#include <cstdint>
#include <string>

#include "messages/error.h"
#include "tools/bench/report.h"

namespace troupe::tools {

// `adapters`: a folder with the adapters pirate and caps of that model.
Result<void> bench_lora(Report& report, const std::string& model, const std::string& adapters, std::uint32_t threads);

}  // namespace troupe::tools
