// The simulator's long run: sim [--seeds N] [--seed S] [--lora] [--hybrid] [--replicas N] [--log]. Runs seeds S, S + 1, …; stops at the
// first one that breaks a rule, with the seed, the fewest client events that still do it, and the messages. `--seed S` alone: that one.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "tests/sim/scenario.h"

namespace {

int usage() {
  std::fputs("usage: sim [--seeds N] [--seed S] [--lora] [--hybrid] [--replicas N] [--log]\n", stderr);
  return 2;
}

void print(const std::vector<std::string>& log) {
  for (std::size_t i = 0; i < log.size(); ++i) std::printf("%5zu %s\n", i + 1, log[i].c_str());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace troupe::sim;
  std::uint64_t seeds = 0, first = 0, replicas = 0;
  bool many = false;               // several replicas, some of which are lost; 0: as many as the seed has
  bool log = false, lora = false;  // lives with LoRA commands
  bool hybrid = false;             // of a model with recurrent layers
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    char* end = nullptr;
    if (arg == "--log")
      log = true;
    else if (arg == "--lora")
      lora = true;
    else if (arg == "--hybrid")
      hybrid = true;
    else if (arg == "--replicas" && i + 1 < argc) {
      many = true;
      replicas = std::strtoull(argv[++i], &end, 10);
      if (end == argv[i] || *end != 0 || replicas > 16) return usage();
    } else if ((arg == "--seeds" || arg == "--seed") && i + 1 < argc) {
      (arg == "--seed" ? first : seeds) = std::strtoull(argv[++i], &end, 10);
      if (end == argv[i] || *end != 0) return usage();
    } else
      return usage();
  }
  if (seeds == 0) seeds = first != 0 ? 1 : 10'000;
  if (first == 0) first = 1;

  const auto start = std::chrono::steady_clock::now();
  Coverage coverage;
  ReplicaTotals totals;
  std::uint64_t messages = 0, reference = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    Scenario scenario = many   ? make_replica_scenario(seed, lora, static_cast<std::uint32_t>(replicas))
                        : lora ? make_lora_scenario(seed)
                               : make_scenario(seed);
    if (hybrid) scenario = as_hybrid(std::move(scenario));
    const Outcome outcome = run_scenario(scenario, {}, 0, log);
    print(outcome.log);
    coverage.add(outcome.coverage);
    totals.add(outcome);
    messages += outcome.messages;
    reference += outcome.reference_messages;
    if (outcome.violation.empty()) continue;
    const std::size_t n = shrink(scenario);
    const Outcome shortest = run_scenario(scenario, {}, n, true);
    print(shortest.log);
    std::printf("seed %llu breaks a rule; with its first %zu of %zu client events: %s%s\nagain: sim --seed %llu%s --log\n",
                static_cast<unsigned long long>(seed), n, scenario.events.size(), shortest.violation.c_str(),
                leave_recording(scenario, {}, n).c_str(), static_cast<unsigned long long>(seed),
                (std::string(lora ? " --lora" : "") + (hybrid ? " --hybrid" : "") + (many ? " --replicas " + std::to_string(replicas) : ""))
                    .c_str());
    return 1;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (std::size_t i = 0; i < static_cast<std::size_t>(Path::count); ++i)
    std::printf("%12llu  %s\n", static_cast<unsigned long long>(coverage.of(static_cast<Path>(i))), name(static_cast<Path>(i)));
  std::printf("seeds %llu..%llu: 0 violations; %.0f messages a seed (and %.0f undisturbed), %.0f messages/s, %.0f seeds/s, %.0f steps/s\n",
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + seeds - 1),
              static_cast<double>(messages) / static_cast<double>(seeds), static_cast<double>(reference) / static_cast<double>(seeds),
              static_cast<double>(messages + reference) / seconds, static_cast<double>(seeds) / seconds,
              static_cast<double>(coverage.of(Path::steps)) / seconds);
  if (many) std::fputs(totals.text().c_str(), stdout);
  const std::string missing = many ? totals.missing() : coverage.missing();
  if (missing.empty()) return 0;
  std::printf("never taken: %s\n", missing.c_str());
  return seeds >= 5'000 && (many || !(lora || hybrid)) ? 1 : 0;
}
