// The negative control of `tools/dev tsan`: two actors on threads of their own write one variable from their handlers.
// ThreadSanitizer must report it; if it doesn't, the hand-over between actors hides races, and a clean run of the
// tests would mean nothing.
#include <cstdint>
#include <cstdio>

#include "caf/all.hpp"

namespace {

std::int64_t shared_count = 0;

[[gnu::noinline]] void planted_handler(std::int64_t n) { shared_count += n; }

caf::behavior writer(caf::event_based_actor* self) {
  return {[self](std::int64_t n) {
    planted_handler(n);
    if (n == 0) self->quit();
  }};
}

}  // namespace

int main() {
  {
    caf::actor_system_config config;
    caf::actor_system system(config);
    auto first = system.spawn<caf::detached>(writer);
    auto second = system.spawn<caf::detached>(writer);
    for (std::int64_t n = 100; n >= 0; --n) {
      caf::anon_send(first, n);
      caf::anon_send(second, n);
    }
  }
  std::printf("%lld\n", static_cast<long long>(shared_count));
  return 0;
}
