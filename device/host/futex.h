// Sleeping on a 32-bit word that another thread changes: what the host driver's threads park on.
//
// park(word, old) may return early; callers loop. Lost wake-ups are the callers' affair: they announce themselves in
// a flag with sequentially consistent order before they look at the word again, and who changes the word looks at
// the flag after.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace troupe::device {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) && std::atomic<std::uint32_t>::is_always_lock_free);

inline void park(std::atomic<std::uint32_t>& word, std::uint32_t old) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
}

inline void unpark_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace troupe::device
