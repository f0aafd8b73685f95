// What this machine's memory and cores give at best, measured: the roof that a step's bytes and operations are held
// against. One thread may call; the measurement itself uses `threads`.
#pragma once

namespace troupe::tools {

struct MachineFigures {
  double read_gb_s = 0;     // reading memory that no cache holds, all threads together
  double int8_gops = 0;     // multiplications and additions of 8-bit products, in registers; by the best instructions there are
  double float_gflops = 0;  // of F32 fused multiply-adds, likewise
};

MachineFigures measure_machine(unsigned threads);

}  // namespace troupe::tools
