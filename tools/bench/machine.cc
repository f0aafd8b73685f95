#include "tools/bench/machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace troupe::tools {
namespace {

using Clock = std::chrono::steady_clock;

typedef float Floats __attribute__((vector_size(64)));
typedef std::int32_t Ints __attribute__((vector_size(64)));

constexpr std::size_t kBufferBytes = std::size_t{256} << 20;  // a thread: beyond every cache
constexpr int kChains = 12;                                   // independent sums: hides the latency of an instruction
constexpr int kIterations = 2'000'000;

// The value must be computed, and what makes it is unknown to the compiler.
template <class T>
void keep(T& value) {
  asm volatile("" : "+m"(value) : : "memory");
}

void read_all(const std::vector<Ints>& buffer) {
  Ints sum[4] = {};
  for (std::size_t i = 0; i + 4 <= buffer.size(); i += 4)
    for (std::size_t k = 0; k < 4; ++k) sum[k] ^= buffer[i + k];
  for (Ints& s : sum) keep(s);
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void multiply_floats_512() {
  __m512 sum[kChains], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
  for (__m512& s : sum) s = _mm512_set1_ps(1.0f);
  for (int i = 0; i < kIterations; ++i)
    for (__m512& s : sum) s = _mm512_fmadd_ps(s, a, b);
  for (__m512& s : sum) keep(s);
}
__attribute__((target("avx2,fma"))) void multiply_floats_256() {
  __m256 sum[kChains], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
  for (__m256& s : sum) s = _mm256_set1_ps(1.0f);
  for (int i = 0; i < kIterations; ++i)
    for (__m256& s : sum) s = _mm256_fmadd_ps(s, a, b);
  for (__m256& s : sum) keep(s);
}
__attribute__((target("avx512f,avx512vnni"))) void multiply_bytes_512() {
  __m512i sum[kChains], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
  keep(a), keep(b);
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  for (int i = 0; i < kIterations; ++i)
    for (__m512i& s : sum) s = _mm512_dpbusd_epi32(s, a, b);
  for (__m512i& s : sum) keep(s);
}
__attribute__((target("avx2"))) void multiply_bytes_256() {
  __m256i sum[kChains], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-5), ones = _mm256_set1_epi16(1);
  keep(a), keep(b);
  for (__m256i& s : sum) s = _mm256_setzero_si256();
  for (int i = 0; i < kIterations; ++i) {
    for (__m256i& s : sum) {
      s = _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
      keep(b);
    }
  }
  for (__m256i& s : sum) keep(s);
}
#endif

// Seconds that `threads` threads take for `work` together, the best of three times: what the machine can do.
double best_time(unsigned threads, const std::function<void(unsigned)>& work) {
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> crew;
    std::atomic<bool> go{false};
    for (unsigned t = 0; t < threads; ++t) {
      crew.emplace_back([&, t] {
        while (!go.load(std::memory_order_acquire)) {
        }
        work(t);
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const Clock::time_point begin = Clock::now();
    go.store(true, std::memory_order_release);
    for (std::thread& thread : crew) thread.join();
    const double s = std::chrono::duration<double>(Clock::now() - begin).count();
    best = best == 0 ? s : std::min(best, s);
  }
  return best;
}

}  // namespace

MachineFigures measure_machine(unsigned threads) {
  MachineFigures out;
  std::vector<std::vector<Ints>> buffers(threads);
  for (auto& buffer : buffers) buffer.assign(kBufferBytes / sizeof(Ints), Ints{} + 1);
  out.read_gb_s = 1e-9 * static_cast<double>(threads) * kBufferBytes / best_time(threads, [&](unsigned t) { read_all(buffers[t]); });
#if defined(__x86_64__)
  const double chains = 1e-9 * static_cast<double>(threads) * kChains * kIterations;
  const bool wide = __builtin_cpu_supports("avx512f") != 0, vnni = wide && __builtin_cpu_supports("avx512vnni") != 0;
  if (wide) {
    out.float_gflops = chains * 32 / best_time(threads, [](unsigned) { multiply_floats_512(); });
  } else if (__builtin_cpu_supports("fma") != 0) {
    out.float_gflops = chains * 16 / best_time(threads, [](unsigned) { multiply_floats_256(); });
  }
  if (vnni) {
    out.int8_gops = chains * 128 / best_time(threads, [](unsigned) { multiply_bytes_512(); });
  } else if (__builtin_cpu_supports("avx2") != 0) {
    out.int8_gops = chains * 64 / best_time(threads, [](unsigned) { multiply_bytes_256(); });
  }
#endif
  return out;
}

}  // namespace troupe::tools
