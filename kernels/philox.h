// Philox 4x32-10: four random 32-bit words from a counter and a key, with no state. J. Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"

namespace troupe::kernels {

struct PhiloxWords {
  std::uint32_t x[4];
};

TROUPE_HOST_DEVICE constexpr PhiloxWords philox4x32_10(PhiloxWords counter, std::uint64_t key) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  PhiloxWords c = counter;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c.x[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c.x[2];
    c = {{static_cast<std::uint32_t>(p1 >> 32) ^ c.x[1] ^ k0, static_cast<std::uint32_t>(p1),
          static_cast<std::uint32_t>(p0 >> 32) ^ c.x[3] ^ k1, static_cast<std::uint32_t>(p0)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Uniform in [0, 2^24): the random number of a request's output `index`. `choice` tells apart several draws for one output.
TROUPE_HOST_DEVICE constexpr std::uint32_t philox_draw(std::uint64_t seed, std::uint32_t index, std::uint32_t choice) {
  return philox4x32_10({{index, choice, 0, 0}}, seed).x[0] >> 8;
}

}  // namespace troupe::kernels
