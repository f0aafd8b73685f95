#include "messages/result.h"

#include <fmt/format.h>

namespace troupe {

std::string label(const StepResult& x) {
  if (!x.ok()) return fmt::format("Result{{{}, {}}}", label(x.ticket), label(x.error));
  return fmt::format("Result{{{}, n={}}}", label(x.ticket), x.rows.size());
}

}  // namespace troupe
