// `tools/dev bench`: the table, and with --json FILE the same figures for machines.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "device/host/driver.h"
#include "device/models/scripted.h"
#include "tools/bench/lora_bench.h"
#include "tools/bench/machine.h"
#include "tools/bench/model_bench.h"
#include "tools/bench/prefill_bench.h"
#include "tools/bench/replica_bench.h"
#include "tools/bench/report.h"
#include "tools/bench/scripted_bench.h"
#include "tools/bench/trace_bench.h"

namespace troupe::tools {
namespace {

using std::chrono::microseconds;

// Where `tools/dev bench` runs, the default model's are there.
constexpr const char* kAdapters = "tests/golden/smollm2/adapters";

unsigned threads() { return std::max(1u, std::thread::hardware_concurrency()); }

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

// A step of `rows` decode rows can be no faster than the machine reads the weights once, nor than it multiplies every
// parameter with every row. KV and activations, a few per cent at these lengths, are left out of both.
void add_roofline(Report& report, const MachineFigures& machine, const ModelSize& size, std::uint32_t rows, double step_ms) {
  const double read_ms = 1e-6 * static_cast<double>(size.tensor_bytes) / machine.read_gb_s;
  const double multiply_ms = 2e-6 * static_cast<double>(size.parameters) * rows / machine.int8_gops;
  const std::string name = fmt::format("decode, batch {}, ", rows);
  report.add(name + "of the memory's roof", 100 * read_ms / step_ms, "%");
  report.add(name + "of the cores' 8-bit roof", 100 * multiply_ms / step_ms, "%");
}

Result<void> bench_model(Report& report, const std::string& path) {
  const unsigned threads = tools::threads();
  report.section("Machine, " + fmt::format("{} threads", threads));
  const MachineFigures machine = measure_machine(threads);
  report.add("memory, read", machine.read_gb_s, "GB/s");
  report.add("8-bit products, multiplied and added", machine.int8_gops, "GOP/s");
  report.add("F32 fused multiply-adds", machine.float_gflops, "GFLOP/s");

  report.section("Model " + std::filesystem::path(path).filename().string() + fmt::format(", {} threads", threads));
  TROUPE_TRY(auto model, ModelBench::open(path, 32, 2, threads));
  report.add("loaded, tokenizer included, in", model->size().load_s, "s");
  report.add("weights", 1e-6 * static_cast<double>(model->size().tensor_bytes), "MB");
  TROUPE_TRY(model->decode(1, 16, 8));  // the pages of the file are in
  for (const std::uint32_t prompt : {64u, 512u}) {
    TROUPE_TRY(auto tokens, model->prefill(prompt, 4));
    report.add(fmt::format("prefill, {} tokens a prompt", prompt), tokens, "tokens/s");
  }
  for (const std::uint32_t batch : {1u, 4u, 8u, 16u, 32u}) {
    TROUPE_TRY(auto figures, model->decode(batch, 64, 64));
    report.add(fmt::format("decode, batch {}", batch), figures.tokens_per_s, "tokens/s");
    report.add(fmt::format("decode, batch {}, a step", batch), figures.step_ms, "ms");
    add_roofline(report, machine, model->size(), batch, figures.step_ms);
  }
  return model->stop();
}

// For tools/bench/compare.py: a line "BATCH PROMPT TOKENS" in, a line "DECODE PREFILL" out, both in tokens a second, until
// the input ends.
Result<void> answer(const std::string& path, std::uint32_t max_batch, std::uint32_t threads) {
  TROUPE_TRY(auto model, ModelBench::open(path, max_batch, 2, threads));
  std::uint32_t batch = 0, prompt = 0, tokens = 0;
  while (std::scanf("%u %u %u", &batch, &prompt, &tokens) == 3) {
    TROUPE_TRY(auto prefill, model->prefill(prompt, std::max(1u, std::min(batch, 4u))));
    TROUPE_TRY(auto decode, model->decode(batch, prompt, tokens));
    fmt::print("{:.1f} {:.1f}\n", decode.tokens_per_s, prefill);
    std::fflush(stdout);
  }
  return model->stop();
}

// The host loop at depth 2 alone, a line a round, with and without the flight recorder: for comparing two builds.
Result<void> bench_loop_rounds(std::uint32_t rows, std::uint32_t rounds) {
  fmt::print("{:>10} {:>10} {:>10} {:>10}  us: off median, 99 %; flight recorder median, 99 %\n", "off", "99 %", "flight", "99 %");
  for (std::uint32_t round = 0; round < rounds; ++round) {
    ScriptedRun run{.rows = rows, .steps = 600, .cpu = control_cpu()};
    TROUPE_TRY(auto with, run_mailboxes(run));
    run.trace.flight_bytes = 0;
    TROUPE_TRY(auto without, run_mailboxes(run));
    fmt::print("{:10.2f} {:10.2f} {:10.2f} {:10.2f}\n", without.at(0.5), without.at(0.99), with.at(0.5), with.at(0.99));
    std::fflush(stdout);
  }
  return success();
}

Result<void> bench_adapters(const std::string& model, const std::string& adapters) {
  Report report;
  return bench_lora(report, model, adapters, threads());
}

// Tokens a second at batch 8, by the share of requests that sample and the depth; rounds of all, interleaved.
Result<void> bench_sampled(Report& report, const std::string& path) {
  constexpr std::uint32_t kBatch = 8, kPrompt = 64, kTokens = 96, kRounds = 5;
  constexpr std::array kShares = {0.0, 0.7, 1.0};
  report.section(fmt::format("Rows that sample, batch {}, {} threads; median of rounds", kBatch, threads()));
  std::array<std::unique_ptr<ModelBench>, 2> benches;  // by depth - 1
  for (std::uint32_t depth = 1; depth <= benches.size(); ++depth) {
    TROUPE_TRY(benches[depth - 1], ModelBench::open(path, kBatch, depth, threads()));
    TROUPE_TRY(benches[depth - 1]->decode(kBatch, kPrompt, 16));
  }
  std::array<std::array<std::vector<double>, kShares.size()>, benches.size()> speed;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    for (std::size_t share = 0; share < kShares.size(); ++share) {
      for (std::size_t k = 0; k < benches.size(); ++k) {
        const std::size_t depth = (k + round) % benches.size();
        TROUPE_TRY(auto figures, benches[depth]->decode(kBatch, kPrompt, kTokens, kShares[share]));
        speed[depth][share].push_back(figures.tokens_per_s);
      }
    }
  }
  for (std::size_t depth = 0; depth < benches.size(); ++depth) {
    for (std::size_t share = 0; share < kShares.size(); ++share) {
      std::vector<double>& xs = speed[depth][share];
      std::sort(xs.begin(), xs.end());
      report.add(fmt::format("depth {}, {:.0f} % sampled", depth + 1, 100 * kShares[share]), xs[xs.size() / 2], "tokens/s");
    }
    TROUPE_TRY(benches[depth]->stop());
  }
  return success();
}

Result<void> bench_sampled(const std::string& path) {
  Report report;
  return bench_sampled(report, path);
}

Result<void> bench_several(const std::string& path) {
  Report report;
  return bench_replicas(report, path);
}

// On a scripted device whose steps take a programmed time: 2 ms, or 100 ms with the whole prompt. Its two streams do not slow each
// other down, so it shows what waits for what, and not what a GPU gives.
Result<void> bench_prompts(Report& report) {
  PrefillBench bench;
  bench.start = [&](std::uint32_t streams) -> Result<std::unique_ptr<Runtime>> {
    device::ScriptedOptions script;
    script.context = 4096;
    script.kv_blocks = 4096;
    script.attention = false;
    script.prefill_stream = true;
    script.step_ns = 2'000'000;
    script.token_ns = (100'000'000 - script.step_ns) / bench.prompt;
    auto driver = device::make_host_driver();
    TROUPE_TRY(auto model, device::ScriptedModel::load(*driver, script));
    RuntimeOptions options;
    options.streams = streams;
    return Runtime::start(options, std::move(driver), std::move(model));
  };
  return bench_prefill(report, bench);
}

Result<void> bench_prompts() {
  Report report;
  return bench_prompts(report);
}

Result<void> bench_recording() {
  Report report;
  const char* model = std::getenv("TROUPE_DEFAULT_MODEL");
  return bench_trace(report, model != nullptr && std::filesystem::exists(model) ? model : "", control_cpu());
}

Result<void> bench(const std::string& json) {
  Report report;
  TROUPE_TRY(bench_loop(report));
  TROUPE_TRY(bench_idle(report));
  TROUPE_TRY(bench_counts(report));
  TROUPE_TRY(bench_prompts(report));
  const char* model = std::getenv("TROUPE_DEFAULT_MODEL");
  if (model != nullptr && std::filesystem::exists(model)) {
    TROUPE_TRY(bench_model(report, model));
    TROUPE_TRY(bench_sampled(report, model));
    TROUPE_TRY(bench_replicas(report, model));
    if (std::filesystem::exists(kAdapters)) {
      TROUPE_TRY(bench_lora(report, model, kAdapters, threads()));
    }
  } else {
    std::fputs("bench: no default model (TROUPE_DEFAULT_MODEL): its part is left out\n", stderr);
  }
  if (!json.empty()) return report.write_json(json);
  return success();
}

}  // namespace
}  // namespace troupe::tools

int main(int argc, char** argv) {
  const auto number = [](const std::string& text) { return static_cast<std::uint32_t>(std::strtoul(text.c_str(), nullptr, 10)); };
  const std::vector<std::string> args(argv + 1, argv + argc);
  troupe::Result<void> done = troupe::success();
  if (args.empty() || (args.size() == 2 && args[0] == "--json")) {
    done = troupe::tools::bench(args.empty() ? "" : args[1]);
  } else if (args.size() == 1 && args[0] == "--trace") {
    done = troupe::tools::bench_recording();
  } else if (args.size() == 1 && args[0] == "--prefill") {
    done = troupe::tools::bench_prompts();
  } else if (args.size() == 3 && args[0] == "--loop") {
    done = troupe::tools::bench_loop_rounds(number(args[1]), number(args[2]));
  } else if (args.size() == 3 && args[0] == "--lora") {
    done = troupe::tools::bench_adapters(args[1], args[2]);
  } else if (args.size() == 2 && args[0] == "--sampled") {
    done = troupe::tools::bench_sampled(args[1]);
  } else if (args.size() == 2 && args[0] == "--replicas") {
    done = troupe::tools::bench_several(args[1]);
  } else if (args.size() == 4 && args[0] == "--answer") {
    done = troupe::tools::answer(args[1], number(args[2]), number(args[3]));
  } else {
    std::fputs(
        "usage: bench [--json FILE] | bench --trace | bench --prefill | bench --loop ROWS ROUNDS | bench --lora MODEL ADAPTERS |\n"
        "       bench --sampled MODEL | bench --replicas MODEL | bench --answer MODEL MAX_BATCH THREADS\n",
        stderr);
    return 2;
  }
  if (done) return 0;
  std::fprintf(stderr, "bench: %s\n", done.error().what.c_str());
  return 1;
}
