#include "messages/protocol/spill.h"

#include <fmt/format.h>

#include "messages/protocol/text.h"

namespace troupe {

using namespace protocol_text;

std::string label(const StatePiece& x) { return fmt::format("{} blocks {}+{}/{}", label(x.seq), x.begin, x.count, x.n_blocks + x.n_parts); }
std::string label(const WriteState& x) { return "WriteState " + label(x.piece); }
std::string label(const StateWritten& x) { return or_error("StateWritten " + label(x.seq), x.error, "ok"); }
std::string label(const ReadState& x) { return "ReadState " + label(x.piece); }
std::string label(const StateRead& x) { return or_error("StateRead " + label(x.seq), x.error, "ok"); }
std::string label(const DropState& x) { return "DropState " + label(x.seq); }

}  // namespace troupe
