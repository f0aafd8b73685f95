#include "tools/bench/replica_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/runtime.h"
#include "device/host/driver.h"
#include "device/models/load.h"

namespace troupe::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kRequests = 240, kLive = 96, kBatch = 16, kPrompt = 32, kRounds = 3;

Request make_request(std::uint64_t client, std::uint32_t vocab) {
  Request q;
  q.client = client;
  for (std::uint32_t i = 0; i < kPrompt; ++i) q.prompt.push_back(static_cast<Token>((client * 7919 + i * std::uint64_t{104729}) % vocab));
  const auto size = static_cast<std::uint32_t>(client * 2654435761u % 1000);
  q.stop.max_tokens = size < 200 ? 120 + size : 8 + size % 40;
  q.stop.ignore_eos = true;
  return q;
}

struct Figures {
  double tokens_per_s = 0;
  std::vector<double> imbalance;  // (most - least) / most of what the replicas have to do, each time a request ended
};

Result<std::unique_ptr<Runtime>> open(const std::shared_ptr<const device::ModelFiles>& files, std::uint32_t replicas) {
  device::LoadOptions load;
  load.threads = 1;
  load.max_batch = kBatch;
  std::vector<ReplicaSource> sources;
  for (std::uint32_t i = 0; i < replicas; ++i) {
    ReplicaSource source;
    source.name = fmt::format("host:{}", i);
    source.open = [i, load, files]() -> Result<OpenedReplica> {
      OpenedReplica opened;
      opened.driver = device::make_host_driver({.index = i});
      TROUPE_TRY(opened.model, device::make_model(*files, load, *opened.driver));
      return opened;
    };
    sources.push_back(std::move(source));
  }
  RuntimeOptions options;
  options.max_batch = kBatch;
  return Runtime::start(options, std::move(sources));
}

// kRequests of them, kLive at a time.
Result<Figures> run(Runtime& runtime, std::uint64_t& client) {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint32_t live = 0, failed = 0;
  std::uint64_t tokens = 0;
  const auto on_event = [&](const RequestEvent& event) {
    const std::lock_guard lock(mutex);
    if (event.token != nullptr) ++tokens;
    if (event.finish == nullptr) return;
    failed += event.finish->reason == FinishReason::length ? 0 : 1;
    --live;
    changed.notify_one();
  };
  Figures out;
  const Clock::time_point begin = Clock::now();
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return live < kLive; });
      ++live;
    }
    TROUPE_TRY(runtime.submit(make_request(++client, runtime.model().vocab_size), on_event));
    if (i < kLive) continue;
    const auto replicas = runtime.metrics().replicas;
    const auto [least, most] = std::minmax_element(replicas.begin(), replicas.end(),
                                                   [](const auto& a, const auto& b) { return a.outstanding < b.outstanding; });
    out.imbalance.push_back(static_cast<double>(most->outstanding - least->outstanding) / static_cast<double>(most->outstanding));
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return live == 0; });
  out.tokens_per_s = static_cast<double>(tokens) / std::chrono::duration<double>(Clock::now() - begin).count();
  if (failed != 0) return Error{ErrorCode::internal, "a request of the benchmark did not run to its length"};
  return out;
}

double at(std::vector<double>& xs, double share) {
  std::sort(xs.begin(), xs.end());
  return xs[static_cast<std::size_t>(share * static_cast<double>(xs.size() - 1))];
}

}  // namespace

Result<void> bench_replicas(Report& report, const std::string& model) {
  report.section(fmt::format("Host replicas, a thread each; {} requests of very different lengths, {} live; medians of {} interleaved rounds",
                             kRequests, kLive, kRounds));
  TROUPE_TRY(auto opened, device::open_files(model));
  const auto files = std::make_shared<const device::ModelFiles>(std::move(opened));
  std::array<std::unique_ptr<Runtime>, 2> runtimes;  // of one replica, and of two
  for (std::uint32_t i = 0; i < 2; ++i) {
    TROUPE_TRY(runtimes[i], open(files, i + 1));
  }
  std::array<std::vector<double>, 2> speed;
  std::vector<double> ratio, imbalance;
  std::uint64_t client = 0;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    for (std::uint32_t k = 0; k < 2; ++k) {
      const std::uint32_t i = (k + round) % 2;
      TROUPE_TRY(auto figures, run(*runtimes[i], client));
      speed[i].push_back(figures.tokens_per_s);
      if (i == 1) imbalance.insert(imbalance.end(), figures.imbalance.begin(), figures.imbalance.end());
    }
    ratio.push_back(speed[1].back() / speed[0].back());
  }
  report.add("one replica", at(speed[0], 0.5), "tokens/s");
  report.add("two replicas", at(speed[1], 0.5), "tokens/s");
  report.add("two to one", at(ratio, 0.5), "");
  report.add("outstanding work, the two apart, median", 100 * at(imbalance, 0.5), "%");
  report.add("outstanding work, the two apart, 95 %", 100 * at(imbalance, 0.95), "%");
  for (auto& runtime : runtimes) {
    TROUPE_TRY(runtime->stop());
  }
  return success();
}

}  // namespace troupe::tools
