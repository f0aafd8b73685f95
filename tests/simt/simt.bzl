"""How a .cu file, or a test with kernels of its own, is compiled for the SIMT machine."""

SIMT_NAMES = ["-include", "tests/simt/cuda_names.h"]
SIMT = ["-xc++"] + SIMT_NAMES
