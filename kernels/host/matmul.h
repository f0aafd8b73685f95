// y = W x for many rows of x, weights as stored (Kernels::matmul). A bundle of 16 weight rows is unpacked once per call
// into cache, then meets all tokens; F32 rows, and for few tokens F16 and BF16 rows, meet them as they lie. Threads take
// bundles. One call at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/host/dot_f32.h"
#include "kernels/host/dot_int8.h"
#include "kernels/host/thread_pool.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

class Matmul {
 public:
  // exact: activations stay F32. max_rows, max_cols: of x, over all calls.
  Matmul(Target target, bool exact, std::size_t max_rows, std::size_t max_cols, ThreadPool& pool);

  void run(std::span<const MatmulJob> jobs, const float* x, std::size_t n_rows, std::size_t cols);

 private:
  struct Scratch {  // of one thread: a bundle of unpacked weight rows
    std::vector<float> f32;
    std::vector<std::uint8_t> codes;
    std::vector<float> scale, min;
  };
  void bundle_f32(const MatmulJob& job, std::size_t row, std::size_t n, const float* x, std::size_t n_x, Scratch& s) const;
  void bundle_codes(const MatmulJob& job, std::size_t row, std::size_t n, std::size_t n_x, Scratch& s) const;
  QuantizedRow quantized(std::size_t row, std::size_t cols) const;

  Target target_;
  bool exact_;
  ThreadPool& pool_;
  DotF32 dot_f32_;
  DotInt8 dot_int8_;
  Quantize quantize_;
  std::vector<Scratch> scratch_;
  std::vector<std::int8_t> x_codes_;
  std::vector<float> x_scale_, x_sum_;
  std::vector<std::int32_t> x_offset_;
  QuantizedRow x_{};
};

}  // namespace troupe::kernels
