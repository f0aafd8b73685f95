// A stream as the launch functions take it: a cudaStream_t, so that what only calls them includes no CUDA header. In the
// SIMT emulation of the tests it is what simt::launch_on (tests/simt/simt.h) takes.
#pragma once

namespace troupe::kernels {

using CudaStream = void*;

}  // namespace troupe::kernels
