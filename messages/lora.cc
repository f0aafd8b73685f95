#include "messages/lora.h"

#include <fmt/format.h>

namespace troupe {
namespace {

const char* name(LoraCommand::Kind kind) {
  switch (kind) {
    case LoraCommand::Kind::rotate:
      return "Rotate";
    case LoraCommand::Kind::load_into_slot:
      return "LoadIntoSlot";
    case LoraCommand::Kind::promote_disk:
      return "PromoteDisk";
    case LoraCommand::Kind::promote:
      return "Promote";
    case LoraCommand::Kind::unload:
      return "Unload";
    case LoraCommand::Kind::list:
      return "List";
  }
  return "?";
}

}  // namespace

std::string label(const LoraCommand& x) { return fmt::format("{}{{{}}}", name(x.kind), x.name); }
std::string label(const LoraEntry& x) {
  return fmt::format("{} {} users={}{}", x.name, label(x.adapter), x.users, x.retired ? " retired" : "");
}
std::string label(const LoraAck& x) { return fmt::format("LoraAck{{{}, {}}}", x.name, label(x.adapter)); }
std::string label(const AdapterImage& x) { return fmt::format("image{{{} bytes}}", x.bytes.size()); }
std::string label(const LoraOutcome& x) {
  return fmt::format("{} {}{}", label(x.replica), x.error.code == ErrorCode::none ? "ok" : label(x.error),
                     x.rolled_back ? " rolled_back" : "");
}

}  // namespace troupe
