// `tools/dev bench`: the table, and with --json FILE the same figures for machines.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "tools/bench/model_bench.h"
#include "tools/bench/report.h"
#include "tools/bench/scripted_bench.h"

namespace troupe::tools {
namespace {

using std::chrono::microseconds;

// The control thread gets the last CPU for itself where there is more than one.
int control_cpu() {
  const unsigned n = std::thread::hardware_concurrency();
  return n > 1 ? static_cast<int>(n - 1) : -1;
}

Result<void> bench_loop(Report& report) {
  report.section("Host loop: a step's event done -> the next launch enqueued (1 ms steps, control thread spins)");
  for (const std::uint32_t rows : {1u, 64u, 256u}) {
    for (const std::uint32_t depth : {1u, 2u}) {
      const ScriptedRun run{.rows = rows, .depth = depth, .cpu = control_cpu()};
      const std::string name = fmt::format("{} rows, depth {}", rows, depth);
      TROUPE_TRY(auto mailboxes, run_mailboxes(run));
      report.add(name + ", mailboxes, median", mailboxes.at(0.5), "us");
      report.add(name + ", mailboxes, 99 %", mailboxes.at(0.99), "us");
      TROUPE_TRY(auto direct, run_direct(run));
      report.add(name + ", direct calls, median", direct.at(0.5), "us");
      report.add(name + ", direct calls, 99 %", direct.at(0.99), "us");
    }
  }
  return success();
}

Result<void> bench_idle(Report& report) {
  report.section("Device idle share, 64 rows");
  for (const bool spins : {true, false}) {
    for (const microseconds step : {microseconds(200), microseconds(1000), microseconds(5000)}) {
      for (const std::uint32_t depth : {1u, 2u}) {
        ScriptedRun run{.depth = depth, .step = step};
        run.steps = static_cast<std::uint32_t>(std::min<std::int64_t>(2000, 3'000'000 / step.count()));
        run.spin = spins ? std::chrono::milliseconds(10) : std::chrono::milliseconds(0);
        run.cpu = spins ? control_cpu() : -1;
        TROUPE_TRY(auto figures, run_mailboxes(run));
        report.add(fmt::format("{} us steps, {}, control thread {}", step.count(), depth == 1 ? "sync (depth 1)" : "async (depth 2)",
                               spins ? "spins" : "parks"),
                   100 * figures.idle, "%");
      }
    }
  }
  return success();
}

Result<void> bench_counts(Report& report) {
  report.section("Per step, depth 2, steady state");
  for (const std::uint32_t rows : {1u, 64u, 256u}) {
    TROUPE_TRY(auto figures, run_mailboxes({.rows = rows, .cpu = control_cpu()}));
    report.add(fmt::format("{} rows: messages", rows), figures.messages_per_step, "");
    report.add(fmt::format("{} rows: heap allocations, ours", rows), figures.allocs_per_step, "");
    report.add(fmt::format("{} rows: heap allocations, CAF's", rows), figures.caf_allocs_per_step, "");
  }
  return success();
}

Result<void> bench_model(Report& report, const std::string& path) {
  report.section("Model " + std::filesystem::path(path).filename().string() + fmt::format(", {} threads", std::thread::hardware_concurrency()));
  for (const std::uint32_t prompt : {64u, 512u}) {
    TROUPE_TRY(auto tokens, run_prefill(path, prompt));
    report.add(fmt::format("prefill of {} tokens", prompt), tokens, "tokens/s");
  }
  for (const std::uint32_t batch : {1u, 4u, 8u, 16u, 32u}) {
    TROUPE_TRY(auto figures, run_decode(path, batch, 64, 2));
    report.add(fmt::format("decode, batch {}", batch), figures.tokens_per_s, "tokens/s");
    report.add(fmt::format("decode, batch {}, a step", batch), figures.step_ms, "ms");
  }
  return success();
}

Result<void> bench(const std::string& json) {
  Report report;
  TROUPE_TRY(bench_loop(report));
  TROUPE_TRY(bench_idle(report));
  TROUPE_TRY(bench_counts(report));
  const char* model = std::getenv("TROUPE_DEFAULT_MODEL");
  if (model != nullptr && std::filesystem::exists(model)) {
    TROUPE_TRY(bench_model(report, model));
  } else {
    std::fputs("bench: no default model (TROUPE_DEFAULT_MODEL): its part is left out\n", stderr);
  }
  if (!json.empty()) return report.write_json(json);
  return success();
}

}  // namespace
}  // namespace troupe::tools

int main(int argc, char** argv) {
  std::string json;
  if (argc == 3 && std::string_view(argv[1]) == "--json") {
    json = argv[2];
  } else if (argc != 1) {
    std::fputs("usage: bench [--json FILE]\n", stderr);
    return 2;
  }
  const auto done = troupe::tools::bench(json);
  if (done) return 0;
  std::fprintf(stderr, "bench: %s\n", done.error().what.c_str());
  return 1;
}
