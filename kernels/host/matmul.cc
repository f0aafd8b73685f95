#include "kernels/host/matmul.h"

#include <algorithm>
#include <cstdint>

#include "kernels/host/dot_half.h"

namespace troupe::kernels {

namespace {
constexpr std::size_t kTokensF32 = 4;  // tokens per pass over a bundle: they stay in the first-level cache
constexpr std::size_t kTokensInt8 = 16;
constexpr std::size_t kSerialRows = 2;  // up to so many rows of x are quantized without waking anybody
}  // namespace

Matmul::Matmul(Target target, bool exact, std::size_t max_rows, std::size_t max_cols, ThreadPool& pool)
    : target_(target),
      exact_(exact),
      pool_(pool),
      dot_f32_(dot_f32(target)),
      dot_int8_(dot_int8(target)),
      quantize_(quantize(target)),
      scratch_(pool.threads()) {
  for (Scratch& s : scratch_) {
    s.f32.resize(kBundle * max_cols);
    if (exact) continue;
    s.codes.resize(kBundle * max_cols);
    s.scale.resize(kBundle * max_cols / 16);
    s.min.resize(kBundle * max_cols / 32);
  }
  if (exact) return;
  x_codes_.resize(max_rows * max_cols);
  x_scale_.resize(max_rows * max_cols / 32);
  x_offset_.resize(max_rows * max_cols / 16);
  x_sum_.resize(max_rows * max_cols / 32);
  x_ = {x_codes_.data(), x_scale_.data(), x_offset_.data(), x_sum_.data()};
}

QuantizedRow Matmul::quantized(std::size_t row, std::size_t cols) const {
  const std::size_t block = row * (cols / 32);
  return {x_.codes + row * cols, x_.scale + block, x_.offset + 2 * block, x_.sum + block};
}

void Matmul::run(std::span<const MatmulJob> jobs, const float* x, std::size_t n_rows, std::size_t cols) {
  bool any_codes = false;
  std::size_t bundles = 0;
  for (const MatmulJob& job : jobs) {
    any_codes = any_codes || (!exact_ && has_codes(job.w.format));
    bundles += (job.w.rows + kBundle - 1) / kBundle;
  }
  if (any_codes) {
    auto one = [&](std::size_t t, unsigned) { quantize_(x + t * cols, cols, quantized(t, cols)); };
    if (n_rows <= kSerialRows) {
      for (std::size_t t = 0; t < n_rows; ++t) one(t, 0);
    } else {
      pool_.run(n_rows, one);
    }
  }
  pool_.run(bundles, [&](std::size_t item, unsigned thread) {
    for (const MatmulJob& job : jobs) {
      const std::size_t here = (job.w.rows + kBundle - 1) / kBundle;
      if (item >= here) {
        item -= here;
        continue;
      }
      const std::size_t row = item * kBundle, n = std::min<std::size_t>(kBundle, job.w.rows - row);
      if (exact_ || !has_codes(job.w.format)) {
        bundle_f32(job, row, n, x, n_rows, scratch_[thread]);
      } else {
        bundle_codes(job, row, n, n_rows, scratch_[thread]);
      }
      if (job.bias != nullptr) {
        for (std::size_t t = 0; t < n_rows; ++t) {
          float* y = job.y + t * job.stride + row;
          for (std::size_t r = 0; r < n; ++r) y[r] += job.bias[row + r];
        }
      }
      return;
    }
  });
}

void Matmul::bundle_f32(const MatmulJob& job, std::size_t row, std::size_t n, const float* x, std::size_t n_x, Scratch& s) const {
  const std::size_t cols = job.w.cols, bytes = row_bytes(job.w.format, cols);
  const auto* stored = static_cast<const std::uint8_t*>(job.w.data) + row * bytes;
  if (const DotHalf dot = n_x <= kMaxHalfTokens ? dot_half(job.w.format, target_) : nullptr; dot != nullptr) {
    dot({stored, n, x, cols, n_x, cols, job.y + row, job.stride, job.add});
    return;
  }
  const float* w = s.f32.data();
  if (job.w.format == Format::f32 && reinterpret_cast<std::uintptr_t>(stored) % alignof(float) == 0) {
    w = reinterpret_cast<const float*>(stored);  // as it lies
  } else {
    const UnpackF32 unpack = unpack_f32(job.w.format, target_);
    for (std::size_t r = 0; r < n; ++r) unpack(stored + r * bytes, cols, s.f32.data() + r * cols);
  }
  for (std::size_t t = 0; t < n_x; t += kTokensF32) {
    dot_f32_({w, cols, n, x + t * cols, cols, std::min(kTokensF32, n_x - t), cols, job.y + t * job.stride + row, job.stride, job.add});
  }
}

void Matmul::bundle_codes(const MatmulJob& job, std::size_t row, std::size_t n, std::size_t n_x, Scratch& s) const {
  const std::size_t cols = job.w.cols, bytes = row_bytes(job.w.format, cols);
  const auto* stored = static_cast<const std::uint8_t*>(job.w.data) + row * bytes;
  const CodesBundle w{s.codes.data(), s.scale.data(), s.min.data()};
  unpack_codes(job.w.format, target_)(stored, n, cols, w);
  for (std::size_t t = 0; t < n_x; t += kTokensInt8) {
    dot_int8_({w, quantized(t, cols), n, std::min(kTokensInt8, n_x - t), cols, signed_codes(job.w.format), has_min(job.w.format),
               scale_block(job.w.format) == 16, job.y + t * job.stride + row, job.stride, job.add});
  }
}

}  // namespace troupe::kernels
