// Negative control of kernels' barriers: a .cu that is included behind this header, and behind all that has barriers of CUDA's, runs with
// one of its barriers left out, wherever that stands. A barrier whose loss no seed notices is either not needed, or its loss is
// nothing that the emulation can show.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/simt/cuda_names.h"

namespace troupe::test {

using Barrier = std::tuple<std::string, int>;  // file, line

struct Barriers {
  std::set<Barrier> met;
  Barrier left_out;
};
inline Barriers barriers;

template <class F>
void at_barrier(const char* file, int line, F&& wait) {
  const Barrier here{file, line};
  barriers.met.insert(here);
  if (here != barriers.left_out) wait();
}

// One that also says whether `yes` anywhere; left out, each thread has its own answer.
template <class F>
int at_barrier(const char* file, int line, int yes, F&& wait) {
  at_barrier(file, line, [&] { yes = wait(yes); });
  return yes;
}

// Of a call whose barrier is missing: it may give a wrong answer, fail, or never end. It has a process of its own.
template <class F>
bool is_right(F&& call, const decltype(call(0))& want, std::uint64_t seed) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    int status = 1;
    try {
      status = call(seed) == want ? 0 : 1;
    } catch (const simt::Fault&) {
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// `call(seed)` runs a kernel and returns what it wrote, as bytes. The barriers of it that can be left out without anybody noticing; with
// all of them its answer is the same for every seed.
template <class F>
std::vector<std::string> unnoticed(F&& call) {
  constexpr std::uint64_t kSeeds = 40;
  barriers = {};
  const auto want = call(0);
  EXPECT_FALSE(barriers.met.empty());
  for (std::uint64_t seed = 1; seed <= 12; ++seed) EXPECT_EQ(call(seed), want) << seed;
  std::vector<std::string> out;
  const std::set<Barrier> all = barriers.met;
  for (const Barrier& barrier : all) {
    barriers.left_out = barrier;
    std::uint64_t seed = 1;
    while (seed <= kSeeds && is_right(call, want, seed)) ++seed;
    if (seed > kSeeds) out.push_back(std::get<0>(barrier) + ":" + std::to_string(std::get<1>(barrier)));
  }
  barriers.left_out = {};
  return out;
}

}  // namespace troupe::test

// A name in parentheses is CUDA's own.
#define __syncthreads() ::troupe::test::at_barrier(__FILE__, __LINE__, [] { (__syncthreads)(); })
#define __syncwarp() ::troupe::test::at_barrier(__FILE__, __LINE__, [] { (__syncwarp)(); })
#define __syncthreads_or(yes) ::troupe::test::at_barrier(__FILE__, __LINE__, yes, [](int mine) { return (__syncthreads_or)(mine); })
