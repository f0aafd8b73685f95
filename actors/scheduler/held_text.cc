#include "actors/scheduler/held_text.h"

#include "actors/scheduler/text_stream.h"

namespace troupe::actors {

std::string held_text(const ModelInfo& model, const Request& request, const std::vector<Token>& output) {
  std::string out;
  if (!model.tokens) return out;
  const std::vector<std::string> no_stops;
  const std::uint32_t min = request.stop.min_tokens;
  TextStream text;
  for (std::size_t i = 0; i < output.size(); ++i) {
    const bool past_min = i + 1 > min || min == 0;
    if (text.push(model.tokens->text(output[i]), past_min ? request.stop.stop : no_stops, out)) return {};
    out.clear();
  }
  text.flush(out);
  return out;
}

}  // namespace troupe::actors
