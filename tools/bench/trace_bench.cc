#include "tools/bench/trace_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "tools/bench/model_bench.h"
#include "tools/bench/scripted_bench.h"

namespace troupe::tools {
namespace {

constexpr std::array kModes = {"off", "flight recorder", "file"};
constexpr std::uint32_t kRounds = 7;

TraceOptions options_of(std::size_t mode, const std::string& file) {
  TraceOptions o;
  if (mode == 0) o.flight_bytes = 0;
  if (mode == 2) o.file = file;
  return o;
}

double median(std::vector<double> xs) {
  std::sort(xs.begin(), xs.end());
  return xs[xs.size() / 2];
}

}  // namespace

Result<void> bench_trace(Report& report, const std::string& model, int cpu) {
  std::error_code none;
  const std::string file = (std::filesystem::temp_directory_path(none) / "troupe-bench.trace").string();
  report.section("Recording: host loop at 256 rows, depth 2, control thread spins; median of rounds");
  std::array<std::vector<double>, kModes.size()> loop, bytes;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
      ScriptedRun run{.rows = 256, .steps = 600, .cpu = cpu};
      run.trace = options_of(mode, file);
      TROUPE_TRY(auto figures, run_mailboxes(run));
      loop[mode].push_back(figures.at(0.5));
      bytes[mode].push_back(figures.trace_bytes_per_step);
      if (figures.trace_lost != 0) report.add(fmt::format("{}: records lost", kModes[mode]), static_cast<double>(figures.trace_lost), "");
    }
  }
  for (std::size_t mode = 0; mode < kModes.size(); ++mode) report.add(fmt::format("{}: host loop", kModes[mode]), median(loop[mode]), "us");
  report.add("file: bytes a step", median(bytes[2]), "");
  if (!model.empty()) {
    report.section("Recording: default model, batch 8; median of rounds");
    std::array<std::unique_ptr<ModelBench>, kModes.size()> benches;
    std::array<std::vector<double>, kModes.size()> speed;
    for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
      TROUPE_TRY(benches[mode], ModelBench::open(model, 8, 2, std::max(1u, std::thread::hardware_concurrency()), options_of(mode, file)));
      TROUPE_TRY(benches[mode]->decode(8, 16, 16));
    }
    std::array<std::vector<double>, kModes.size()> ratio;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      for (std::size_t k = 0; k < kModes.size(); ++k) {
        const std::size_t mode = (k + round) % kModes.size();
        TROUPE_TRY(auto figures, benches[mode]->decode(8, 64, 128));
        speed[mode].push_back(figures.tokens_per_s);
      }
      for (std::size_t mode = 1; mode < kModes.size(); ++mode) ratio[mode].push_back(speed[mode].back() / speed[0].back());
    }
    for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
      report.add(fmt::format("{}: decode", kModes[mode]), median(speed[mode]), "tokens/s");
      if (mode != 0) report.add(fmt::format("{}: against off, paired", kModes[mode]), median(ratio[mode]), "");
    }
    for (auto& bench : benches) {
      TROUPE_TRY(bench->stop());
    }
  }
  std::filesystem::remove(file, none);
  return success();
}

}  // namespace troupe::tools
