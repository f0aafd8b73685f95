// What of a request's text its client has not, for an end that no scheduler can make: the bytes of its tokens that were held back
// since they might have become a stop string, or the rest of a character.
#pragma once

#include <string>
#include <vector>

#include "messages/model_info.h"
#include "messages/request.h"

namespace troupe::actors {

// `output`: the tokens that the client has, with the text that was final with them. Nothing if a stop string is complete in it, or
// if there are no texts in `model`.
std::string held_text(const ModelInfo& model, const Request& request, const std::vector<Token>& output);

}  // namespace troupe::actors
