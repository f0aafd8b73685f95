// A request's outcome as one line of JSON, the output of `troupe run`:
//   {"id":…,"text":…,"token_ids":[…],"logprobs":[{"id","logprob","best":[{"id","logprob"}]}],"finish":…,"seed":…,
//    "usage":{"prompt_tokens","completion_tokens","cached_tokens"}}
// with "logprobs" only if they were asked for and "seed" only if the tokens were drawn; or, for what failed,
//   {"id":…,"error":{"code":…,"message":…}}
// followed by the members above if some tokens had been generated.
// A LoRA command: {"id":…,"lora":{"name":…,"slot":…,"generation":…,"evicted":…,"paused_ms":…,"users":…,"adapters":[…]}}, each
// where it says something.
#pragma once

#include <string>

#include "tools/troupe/outcome.h"

namespace troupe::tools {

// Ends with a line feed.
std::string to_json_line(const RequestOutcome& outcome);

}  // namespace troupe::tools
