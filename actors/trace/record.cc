#include "actors/trace/record.h"

namespace troupe::actors::trace {

const char* type_name(std::uint16_t type) {
#define TROUPE_NAME(M) \
  if (type == kTypeOf<M>) return #M;
  TROUPE_MESSAGES(TROUPE_NAME)
#undef TROUPE_NAME
  return type == kTypeOf<SetTimer> ? "SetTimer" : "unknown";
}

std::string label(const AnyMessage& m) {
  return std::visit(
      [](const auto& x) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(x)>, std::monostate>) {
          return "?";
        } else {
          return troupe::label(x);
        }
      },
      m);
}

}  // namespace troupe::actors::trace
