#include "messages/model_info.h"

#include <fmt/format.h>

namespace troupe {

std::string label(const ModelInfo& x) {
  return fmt::format("model{{{}, vocab={}, layers={}, context={}, blocks={}, slots={}, depth={}}}", x.architecture, x.vocab_size,
                     x.n_layers, x.context_length, x.kv_blocks, x.n_slots, x.max_depth);
}

}  // namespace troupe
