// One tensor-core multiplication, d += a b: a [16][16] and b [16][8] in BF16, d [16][8] in F32, for a whole warp. Lane l has
// d: rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next one; a: the same rows, columns 2 (l % 4) and 8 further, two
// neighbours in a word, order {row, row + 8, row at 8 further, row + 8 at 8 further}; b: column l / 4, rows likewise.
// (PTX ISA, mma.m16n8k16.) The bits of an element of d depend on its row of a, its column of b and itself alone.
#pragma once

#include <cstdint>

namespace troupe::kernels {

__device__ inline void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
#ifdef __CUDACC__
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  simt::mma_bf16_16x8x16(d, a, b);
#endif
}

}  // namespace troupe::kernels
