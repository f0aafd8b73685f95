#include "tools/bench/trace_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "actors/trace/reader.h"
#include "actors/trace/replay.h"
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

// A long recording on the scripted device: whether it holds, and how fast it is run again.
Result<void> bench_replay(Report& report, const std::string& file, int cpu) {
  report.section("Replay of 32 rows, 13000 steps of 1 ms");
  ScriptedRun run{.rows = 32, .steps = 13'000, .cpu = cpu};
  run.trace = options_of(2, file);
  TROUPE_TRY(auto figures, run_mailboxes(run));
  TROUPE_TRY(auto recording, actors::trace::read_recording(file));
  const auto begin = std::chrono::steady_clock::now();
  TROUPE_TRY(auto again, actors::trace::replay(recording));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double real = static_cast<double>(recording.events.back().head.time - recording.events.front().head.time) / 1e9;
  if (again.difference) return Error{ErrorCode::internal, "the replay differs: " + again.difference->what};
  if (again.compared != again.recorded)
    return Error{ErrorCode::internal, fmt::format("{} of {} messages were sent again", again.compared, again.recorded)};
  report.add("messages taken up again", static_cast<double>(again.handled), "");
  report.add("messages sent again, all the same", static_cast<double>(again.compared), "");
  report.add("records lost", static_cast<double>(figures.trace_lost), "");
  report.add("bytes a message",
             static_cast<double>(recording.bytes - recording.header_bytes) / static_cast<double>(recording.sent_at.size()), "");
  report.add("times faster than it was", real / seconds, "");
  return success();
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
  TROUPE_TRY(bench_replay(report, file, cpu));
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
