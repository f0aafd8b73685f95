// The machine itself: what it runs, and the mistakes that it has to find (the negative controls of the kernel tests).
#include "tests/simt/simt.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "tests/simt/cuda_names.h"

namespace troupe::simt {
namespace {

std::string fault_of(Dim3 grid, Dim3 block, const std::function<void()>& body, std::uint64_t seed = 1) {
  Machine m(seed);
  try {
    m.launch(grid, block, body);
  } catch (const Fault& f) {
    return f.what();
  }
  return "";
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST(Simt, RunsEveryThreadOfEveryBlockOnce) {
  Machine m(3);
  std::vector<int> seen(2 * 3 * 2 * 4 * 5 * 2);
  for (int round = 1; round <= 2; ++round) {
    m.launch({2, 3, 2}, {4, 5, 2}, [&] {
      const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
      const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
      ++seen[block * 40 + thread];
    });
    for (int n : seen) ASSERT_EQ(n, round);
  }
  EXPECT_EQ(m.launches(), 2u);
}

TEST(Simt, TheSeedDrawsTheOrder) {
  const auto order = [](std::uint64_t seed) {
    Machine m(seed);
    std::vector<unsigned> ran;
    m.launch({2}, {64}, [&] { ran.push_back(blockIdx.x * 64 + threadIdx.x); });
    return ran;
  };
  EXPECT_EQ(order(1), order(1));
  std::set<std::vector<unsigned>> different;
  for (std::uint64_t seed = 0; seed < 20; ++seed) different.insert(order(seed));
  EXPECT_EQ(different.size(), 20u);
}

// Each thread writes a word of shared memory and reads its neighbour's.
std::vector<int> neighbours(std::uint64_t seed, bool barrier) {
  Machine m(seed);
  std::vector<int> out(64);
  m.launch({1}, {64}, [&] {
    static const char key = 0;
    auto* words = static_cast<int*>(shared_memory(&key, 64 * sizeof(int)));
    words[threadIdx.x] = static_cast<int>(threadIdx.x);
    if (barrier) __syncthreads();
    out[threadIdx.x] = words[(threadIdx.x + 1) % 64];
  });
  return out;
}

TEST(Simt, AMissingBarrierShows) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (int i = 0; i < 64; ++i) ASSERT_EQ(neighbours(seed, true)[i], (i + 1) % 64);
    EXPECT_NE(neighbours(seed, false), neighbours(seed, true)) << seed;
  }
}

TEST(Simt, SharedMemoryBeginsAsNanInEveryBlock) {
  Machine m(1);
  int clean = 0;
  m.launch({3}, {1}, [&] {
    static const char key = 0;
    auto* word = static_cast<unsigned*>(shared_memory(&key, 4));
    clean += *word == 0xffffffffu;
    *word = 1;
  });
  EXPECT_EQ(clean, 3);
}

TEST(Simt, WarpExchangesVotesAndBlockVotes) {
  Machine m(5);
  std::vector<int> xored(64), from(64), any(64);
  std::vector<unsigned> ballot(64);
  m.launch({1}, {64}, [&] {
    const unsigned i = threadIdx.x;
    const int mine = static_cast<int>(100 + i);
    xored[i] = __shfl_xor_sync(~0u, mine, 5);
    from[i] = __shfl_sync(~0u, mine, 7);
    ballot[i] = __ballot_sync(~0u, i % 3 == 0);
    any[i] = __syncthreads_or(i == 50);
    if (i % 32 < 8) from[i] += __shfl_sync(0xffu, mine, 1);  // a part of a warp
  });
  for (unsigned i = 0; i < 64; ++i) {
    EXPECT_EQ(xored[i], static_cast<int>(100 + (i ^ 5)));
    EXPECT_EQ(from[i], static_cast<int>(107 + i / 32 * 32 + (i % 32 < 8 ? 101 + i / 32 * 32 : 0)));
    EXPECT_EQ(any[i], 1);
    for (unsigned j = 0; j < 32; ++j) EXPECT_EQ(ballot[i] >> j & 1, (i / 32 * 32 + j) % 3 == 0 ? 1u : 0u);
  }
}

TEST(Simt, AtomicsLoseNothingPlainSumsWithAGapDo) {
  Machine m(5);
  int atomic = 0;
  unsigned bits = 0, most = 0;
  m.launch({4}, {256}, [&] {
    atomicAdd(&atomic, 1);
    atomicOr(&bits, 1u << threadIdx.x % 32);
    atomicMax(&most, threadIdx.x);
  });
  EXPECT_EQ(atomic, 1024);
  EXPECT_EQ(bits, ~0u);
  EXPECT_EQ(most, 255u);
  int plain = 0;
  m.launch({4}, {256}, [&] {
    const int old = plain;
    may_switch();
    plain = old + 1;
  });
  EXPECT_LT(plain, 1024);
}

TEST(Simt, MmaIsTheProduct) {
  Machine m(1);
  float a[16][16], b[16][8], d[16][8];
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) a[i][k] = static_cast<float>((i * 7 + k * 3) % 11 - 5);
    for (int j = 0; j < 8; ++j) b[i][j] = static_cast<float>((i * 5 + j * 2) % 9 - 4), d[i][j] = static_cast<float>(i - j);
  }
  const auto pair = [](float low, float high) {
    std::uint32_t l, h;
    std::memcpy(&l, &low, 4), std::memcpy(&h, &high, 4);
    return l >> 16 | (h & 0xffff0000u);
  };
  float out[16][8];
  m.launch({1}, {32}, [&] {
    const unsigned g = threadIdx.x / 4, q = threadIdx.x % 4 * 2;
    float c[4] = {d[g][q], d[g][q + 1], d[g + 8][q], d[g + 8][q + 1]};
    const std::uint32_t x[4] = {pair(a[g][q], a[g][q + 1]), pair(a[g + 8][q], a[g + 8][q + 1]), pair(a[g][q + 8], a[g][q + 9]),
                                pair(a[g + 8][q + 8], a[g + 8][q + 9])};
    const std::uint32_t y[2] = {pair(b[q][g], b[q + 1][g]), pair(b[q + 8][g], b[q + 9][g])};
    mma_bf16_16x8x16(c, x, y);
    out[g][q] = c[0], out[g][q + 1] = c[1], out[g + 8][q] = c[2], out[g + 8][q + 1] = c[3];
  });
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      float want = d[i][j];
      for (int k = 0; k < 16; ++k) want += a[i][k] * b[k][j];
      ASSERT_EQ(out[i][j], want) << i << " " << j;  // small integers: exact in any order
    }
  }
}

TEST(SimtFaults, ABarrierThatSomeThreadsNeverReach) {
  EXPECT_TRUE(contains(fault_of({1}, {64},
                                [] {
                                  if (threadIdx.x != 40) __syncthreads();
                                }),
                       "never reach"));
  EXPECT_TRUE(contains(fault_of({1}, {64},
                                [] {
                                  if (threadIdx.x % 32 != 3) __shfl_xor_sync(~0u, 1, 1);
                                }),
                       "never reach"));
  EXPECT_TRUE(contains(fault_of({1}, {64},
                                [] {
                                  if (threadIdx.x < 32)
                                    __syncthreads();
                                  else
                                    __syncwarp();
                                }),
                       "never reach"));
}

TEST(SimtFaults, DifferentPlacesTakenForOneBarrier) {
  const auto two_barriers = [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  };
  EXPECT_TRUE(contains(fault_of({1}, {64}, two_barriers), "different places"));
  const auto two_exchanges = [] {
    if (threadIdx.x < 16) {
      __shfl_xor_sync(~0u, 1, 1);
    } else {
      __syncwarp();
    }
  };
  EXPECT_TRUE(contains(fault_of({1}, {32}, two_exchanges), "different places"));
}

TEST(SimtFaults, LanesThatAreNotThere) {
  EXPECT_TRUE(contains(fault_of({1}, {32}, [] { __syncwarp(1u); }), "not in the mask"));
  EXPECT_TRUE(contains(fault_of({1}, {32},
                                [] {
                                  if (threadIdx.x < 2) __shfl_sync(3u, 1, 5);
                                }),
                       "not in the mask"));
  EXPECT_TRUE(contains(fault_of({1}, {40},
                                [] {
                                  if (threadIdx.x >= 32) __syncwarp();
                                }),
                       "does not have"));
}

TEST(SimtFaults, LaunchesThatCudaRefuses) {
  EXPECT_TRUE(contains(fault_of({0}, {32}, [] {}), "no valid configuration"));
  EXPECT_TRUE(contains(fault_of({1}, {1025}, [] {}), "no valid configuration"));
  EXPECT_TRUE(contains(fault_of({1, 65536}, {1}, [] {}), "no valid configuration"));
  EXPECT_THROW((void)thread_index(), Fault);
}

TEST(SimtFaults, TheMachineGoesOnAfterOne) {
  Machine m(9);
  for (int round = 0; round < 3; ++round) {
    EXPECT_THROW(m.launch({4}, {96},
                          [] {
                            if (threadIdx.x == 0) __syncthreads();
                          }),
                 Fault);
    EXPECT_THROW(m.launch({1}, {96},
                          [] {
                            if (threadIdx.x == 5) throw std::runtime_error("in a thread");
                            __syncthreads();
                          }),
                 Fault);
    int n = 0;
    m.launch({2}, {96}, [&] {
      __syncthreads();
      ++n;
    });
    EXPECT_EQ(n, 192);
  }
}

#if defined(__SANITIZE_ADDRESS__)
// Else whatever is mapped there next is taken for a dead frame.
TEST(Simt, StacksAreGivenBackWithoutMarks) {
  char* frame = nullptr;
  {
    Machine m(1);
    m.launch({1}, {1}, [&] {
      volatile char local[64] = {};
      frame = const_cast<char*>(local);
      __syncthreads();
    });
  }
  // The rest of its page is the stack's, too: stacks end with a page.
  char* end = frame + 4096 - reinterpret_cast<std::uintptr_t>(frame) % 4096;
  EXPECT_EQ(__asan_region_is_poisoned(frame - 4096, static_cast<std::size_t>(end - frame) + 4096), nullptr);
}
#endif

}  // namespace
}  // namespace troupe::simt
