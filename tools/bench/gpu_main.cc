// gpu_bench: the benchmarks that need a GPU, and the model that they use.
#include <cstdio>
#include <string>
#include <vector>

#include "tools/bench/gpu_bench.h"
#include "tools/bench/random_model.h"
#include "tools/bench/report.h"

int main(int argc, char** argv) {
  using namespace troupe;
  const std::vector<std::string> args(argv + 1, argv + argc);
  Result<void> done = success();
  if (args.size() == 4 && args[0] == "make-model" && tools::shape_named(args[1])) {
    done = tools::write_random_model(*tools::shape_named(args[1]), args[3], args[2]);
  } else if (args.size() == 1 || (args.size() == 3 && args[1] == "--json")) {
    tools::Report report;
    done = tools::bench_gpu(report, args[0]);
    if (const auto written = args.size() == 3 ? report.write_json(args[2]) : success(); done && !written) done = written;
  } else {
    std::fputs("usage: gpu_bench MODEL [--json FILE] | gpu_bench make-model llama-1b|tiny TOKENIZER_FOLDER FOLDER\n", stderr);
    return 2;
  }
  if (done) return 0;
  std::fprintf(stderr, "gpu_bench: %s\n", done.error().what.c_str());
  return 1;
}
