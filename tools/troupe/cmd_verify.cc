// troupe verify: run-ahead changes no token (R1), shown on a workload.
#include <fmt/format.h>
#include <unistd.h>
#include <boost/program_options/value_semantic.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <thread>

#include "tools/troupe/commands.h"
#include "tools/troupe/compare.h"
#include "tools/troupe/engine.h"
#include "tools/troupe/output.h"
#include "tools/troupe/runner.h"

namespace troupe::tools {
namespace {

namespace po = boost::program_options;

// The requests of a workload. A sampled one without a seed gets one by its line, so that every pass draws the same.
Result<std::vector<RequestLine>> read_workload(const std::string& path) {
  TROUPE_TRY(auto reader, LineReader::open(path));
  std::vector<RequestLine> out;
  std::string line;
  for (;;) {
    TROUPE_TRY(bool more, reader.next(line));
    if (!more) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto parsed = parse_request_line(line, fmt::format("{}:{}", reader.name(), reader.number()));
    if (auto* bad = std::get_if<LineError>(&parsed)) return bad->error;
    RequestLine& request = std::get<RequestLine>(parsed);
    if (!request.request.sampling.seed) request.request.sampling.seed = reader.number();
    out.push_back(std::move(request));
  }
  if (out.empty()) return Error{ErrorCode::bad_request, fmt::format("{}: no requests in it", path)};
  return out;
}

struct Pass {
  std::vector<RequestOutcome> outcomes;  // in the workload's order
  RuntimeMetrics metrics;
};

// Each pass is recorded, so that a divergence can be looked at. Gone with the last verdict that needs none of them.
class Recordings {
 public:
  explicit Recordings(const CommonOptions& common) : asked_for_(!common.trace.empty()) {
    std::error_code none;
    base_ = asked_for_ ? common.trace : (std::filesystem::temp_directory_path(none) / fmt::format("troupe-verify-{}", ::getpid())).string();
  }
  ~Recordings() {
    std::error_code none;
    for (const std::string& path : paths_)
      if (!asked_for_ && !kept_) std::filesystem::remove(path, none);
  }
  std::string of(const std::string& pass) { return paths_.emplace_back(base_ + "." + pass); }
  void keep() { kept_ = true; }

 private:
  bool asked_for_;
  bool kept_ = false;
  std::string base_;
  std::vector<std::string> paths_;
};

Result<Pass> run_pass(CommonOptions common, const char* what, std::uint32_t depth, actors::SchedulerFault fault,
                      const std::vector<RequestLine>& workload, std::string trace) {
  common.trace = std::move(trace);
  TROUPE_TRY(auto engine, start_engine(common, depth, fault));
  Pass pass;
  std::map<std::string, std::size_t> index;  // place -> position in the workload
  for (std::size_t i = 0; i < workload.size(); ++i) index[workload[i].place] = i;
  pass.outcomes.resize(workload.size());
  const bool progress = ::isatty(STDERR_FILENO) != 0;
  std::size_t done = 0;
  Runner runner(
      *engine.runtime, [&](const RequestLine& line) { return prompt_ids(engine.text, line); },
      [&](RequestOutcome outcome) {
        ++done;
        if (progress) std::fputs(fmt::format("\r\x1b[K{}: {} of {} requests", what, done, workload.size()).c_str(), stderr);
        pass.outcomes[index.at(outcome.place)] = std::move(outcome);
        return true;
      });
  std::thread input([&] {
    for (const RequestLine& line : workload) runner.add(line);
    runner.close();
  });
  runner.run();
  input.join();
  if (progress) std::fputs("\r\x1b[K", stderr);
  pass.metrics = engine.runtime->metrics();
  TROUPE_TRY(engine.runtime->stop());
  return pass;
}

std::string describe(const char* what, const Pass& pass, const std::vector<RequestLine>& workload) {
  const auto commands =
      static_cast<std::size_t>(std::count_if(workload.begin(), workload.end(), [](const RequestLine& l) { return l.lora.has_value(); }));
  std::size_t tokens = 0, failed = 0, cancelled = 0, late = 0;
  for (const RequestOutcome& o : pass.outcomes) {
    tokens += o.token_ids.size();
    failed += o.error.code != ErrorCode::none ? 1 : 0;
    cancelled += o.finish == FinishReason::cancelled ? 1 : 0;
    late += o.finish == FinishReason::deadline ? 1 : 0;
  }
  const actors::SchedulerStats& s = pass.metrics.scheduler;
  const double share = s.decode_steps == 0 ? 0 : 100.0 * static_cast<double>(s.steps_ahead) / static_cast<double>(s.decode_steps);
  const std::string aside = s.prefill_steps == 0 ? "" : fmt::format(", {} of prefill beside", s.prefill_steps);
  return fmt::format(
      "{}: {} requests{}, {} failed, {} cancelled, {} past their deadline, {} tokens, {} steps, {} with decode rows, "
      "{} ahead ({:.1f} %){}, {} over-runs, {} redone rows, {} preemptions, {} resumes\n",
      what, workload.size() - commands, commands == 0 ? "" : fmt::format(" and {} LoRA commands", commands), failed, cancelled, late,
      tokens, s.steps, s.decode_steps, s.steps_ahead, share, aside, s.overruns, s.redone_rows, s.preemptions, s.resumes);
}

Result<std::string> verify(const Parsed& line, const std::vector<RequestLine>& workload, actors::SchedulerFault fault) {
  const std::string ahead_name = fmt::format("depth {}", line.common.depth) +
                                 (line.common.devices.size() > 1 ? fmt::format(" on {} devices", line.common.devices.size()) : "");
  Recordings recordings(line.common);
  const std::string first_trace = recordings.of("depth-1"), control_trace = recordings.of("control"),
                    ahead_trace = recordings.of(fmt::format("ahead-{}", line.common.depth));
  const auto look = [&](const std::string& verdict, const std::string& other) {
    recordings.keep();
    std::fputs(fmt::format("troupe verify: to see why: troupe trace diff {} {}\n", first_trace, other).c_str(), stderr);
    return verdict;
  };
  CommonOptions alone = line.common;  // the reference: no device but the first has a part in it
  alone.devices.resize(1);
  alone.streams = std::min(alone.streams, 2u);  // nor a stream beside
  TROUPE_TRY(auto first, run_pass(alone, "depth 1", 1, actors::SchedulerFault::none, workload, first_trace));
  TROUPE_TRY(write_all(1, describe("depth 1", first, workload)));
  TROUPE_TRY(auto control, run_pass(alone, "control", 1, actors::SchedulerFault::none, workload, control_trace));
  TROUPE_TRY(write_all(1, describe("control", control, workload)));
  TROUPE_TRY(auto ahead, run_pass(line.common, ahead_name.c_str(), line.common.depth, fault, workload, ahead_trace));
  TROUPE_TRY(write_all(1, describe(ahead_name.c_str(), ahead, workload)));
  if (first_divergence(first.outcomes, control.outcomes)) return look("control diverged", control_trace);
  if (const auto d = first_divergence(first.outcomes, ahead.outcomes)) {
    return look(fmt::format("diverged at request {} token {}", d->id, d->token), ahead_trace);
  }
  if (ahead.metrics.scheduler.steps_ahead == 0) return std::string("vacuous");
  return std::string("identical");
}

}  // namespace

int run_verify(const Command& self, const std::vector<std::string>& args) {
  po::options_description own("Options of verify"), hidden;
  hidden.add_options()("fault", po::value<std::string>(), "negative control: keep-overrun or ignore-mask-change");
  add_trace_options(own);
  auto parsed = parse_command_line(self, args, own, 1, hidden);
  if (!parsed) return fail(self, parsed.error(), kExitUsage);
  if (parsed.value().help) return kExitOk;
  if (parsed.value().common.cublaslt) {
    return fail(self, {ErrorCode::bad_request, "it shows R1, and --gemm cublaslt gives R1 up: leave one of the two out"}, kExitUsage);
  }
  auto fault = actors::SchedulerFault::none;
  if (parsed.value().values.count("fault") != 0) {
    const auto& name = parsed.value().values["fault"].as<std::string>();
    if (name == "keep-overrun") {
      fault = actors::SchedulerFault::keep_overrun;
    } else if (name == "ignore-mask-change") {
      fault = actors::SchedulerFault::ignore_mask_change;
    } else {
      return fail(self, {ErrorCode::bad_request, "--fault must be keep-overrun or ignore-mask-change, and is " + name}, kExitUsage);
    }
  }
  auto workload = read_workload(parsed.value().positional[0]);
  if (!workload) return fail(self, workload.error(), kExitStart);
  auto verdict = verify(parsed.value(), workload.value(), fault);
  if (!verdict) return fail(self, verdict.error(), verdict.error().code == ErrorCode::io_failed ? kExitClosed : kExitStart);
  const auto written = write_all(1, verdict.value() + "\n");
  if (!written) return fail(self, written.error(), kExitClosed);
  return verdict.value() == "identical" ? kExitOk : kExitFailed;
}

}  // namespace troupe::tools
