#include "messages/lora.h"

#include <fmt/format.h>

namespace troupe {
namespace {

const char* name(LoraCommand::Kind kind) {
  switch (kind) {
    case LoraCommand::Kind::load: return "LoraLoad";
    case LoraCommand::Kind::unload: return "LoraUnload";
    case LoraCommand::Kind::rotate: return "LoraRotate";
  }
  return "?";
}

}  // namespace

std::string label(const LoraCommand& x) { return fmt::format("{}{{{}}}", name(x.kind), x.name); }
std::string label(const LoraAck& x) { return fmt::format("LoraAck{{{}, {}}}", x.name, label(x.adapter)); }

}  // namespace troupe
