// What a subcommand works with: a loaded model, and a runtime over it.
#pragma once

#include <memory>
#include <vector>

#include "actors/runtime.h"
#include "device/models/load.h"
#include "tools/troupe/dump_signal.h"
#include "tools/troupe/jsonl.h"
#include "tools/troupe/options.h"

namespace troupe::tools {

// How the program loads a model for `options`; `depth` overrides theirs (troupe verify).
device::LoadOptions load_options(const CommonOptions& options, std::uint32_t depth);

// The file of --model, or the default one, on the one device of --device. bad_request: there are several. unsupported: a CUDA
// device that is not there, or that no model of this build runs on. Other errors: as load_model; a missing default model says how
// to get it.
Result<device::LoadedModel> open_model(const CommonOptions& options, std::uint32_t depth);
// Its tokenizer and chat format only.
Result<device::TextSide> open_text(const CommonOptions& options);

// What `options` say of a runtime.
RuntimeOptions runtime_options(const CommonOptions& options, std::uint32_t depth);
// The files of the model, and a replica on them for each device.
struct DeviceReplicas {
  device::TextSide text;
  std::vector<ReplicaSource> sources;
};
Result<DeviceReplicas> device_replicas(const CommonOptions& options, std::uint32_t depth);

struct Engine {
  device::TextSide text;  // tokenizer and chat format
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<DumpOnSignal> dump;  // after the runtime: it ends before
};
// With a replica for each device, and those of the nodes; one that is lost is started again.
Result<Engine> start_engine(const CommonOptions& options, std::uint32_t depth, actors::SchedulerFault fault = actors::SchedulerFault::none);

// The ids of a request's prompt. Errors begin with the line's place.
Result<std::vector<Token>> prompt_ids(const device::TextSide& text, const RequestLine& line);

}  // namespace troupe::tools
