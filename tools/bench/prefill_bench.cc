#include "tools/bench/prefill_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct Figures {
  double decode_step_ms = 0;  // median gap while no prompt is prefilled
  double longest_gap_ms = 0;  // from a prompt's submission to its first token: median over the prompts of the longest
  double first_token_ms = 0;  // of a prompt, median
};

// When each request's tokens came.
class Times {
 public:
  RequestCallback of(std::uint64_t client) {
    return [this, client](const RequestEvent& e) {
      const std::lock_guard lock(mutex_);
      if (times_.size() <= client) times_.resize(client + 1);
      if (e.token != nullptr) times_[client].push_back(Clock::now());
      if (e.finish != nullptr && e.finish->reason == FinishReason::error) failed_ = true;
      changed_.notify_all();
    };
  }
  bool wait(std::uint64_t client, std::size_t tokens) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failed_ || (times_.size() > client && times_[client].size() >= tokens); });
    return !failed_;
  }
  std::vector<Clock::time_point> at(std::uint64_t client) {
    const std::lock_guard lock(mutex_);
    return times_[client];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<Clock::time_point>> times_;  // by client
  bool failed_ = false;
};

double ms(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

double median(std::vector<double> xs) {
  std::sort(xs.begin(), xs.end());
  return xs.empty() ? 0 : xs[xs.size() / 2];
}

Request make_request(std::uint64_t client, std::uint32_t prompt, std::uint32_t tokens) {
  Request r;
  r.client = client;
  for (std::uint32_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<Token>((client * 31 + i) % 100));
  r.stop.max_tokens = tokens;
  r.stop.ignore_eos = true;
  return r;
}

Result<Figures> run(const PrefillBench& bench, std::uint32_t streams) {
  TROUPE_TRY(auto runtime, bench.start(streams));
  Times times;
  const auto submit = [&](const Request& r) -> Result<void> {
    if (const auto id = runtime->submit(r, times.of(r.client)); !id) return id.error();
    return success();
  };
  const Error failed{ErrorCode::internal, "a request of the benchmark did not run to its length"};
  for (std::uint64_t client = 1; client <= bench.decoding; ++client) {
    TROUPE_TRY(submit(make_request(client, 1, bench.tokens)));
  }
  constexpr std::uint64_t kWatched = 1;
  if (!times.wait(kWatched, bench.warm)) return failed;
  Figures out;
  std::vector<double> gaps, longest, firsts;
  const auto warm = times.at(kWatched);
  for (std::size_t i = bench.warm / 2; i < warm.size(); ++i) gaps.push_back(ms(warm[i] - warm[i - 1]));
  for (std::uint64_t k = 1; k <= bench.prompts; ++k) {
    const std::uint64_t client = bench.decoding + k;
    const auto begin = Clock::now();
    TROUPE_TRY(submit(make_request(client, bench.prompt, 1)));
    if (!times.wait(client, 1)) return failed;
    const auto first = times.at(client)[0];
    if (!times.wait(kWatched, times.at(kWatched).size() + bench.warm / 2)) return failed;
    double most = 0;
    const auto tokens = times.at(kWatched);
    for (std::size_t i = 1; i < tokens.size(); ++i)
      if (tokens[i] > begin && tokens[i - 1] < first) most = std::max(most, ms(tokens[i] - tokens[i - 1]));
    longest.push_back(most);
    firsts.push_back(ms(first - begin));
  }
  for (std::uint64_t client = 1; client <= bench.decoding; ++client) (void)runtime->cancel(client);
  (void)runtime->drain(std::chrono::seconds(10));
  TROUPE_TRY(runtime->stop());
  return Figures{median(gaps), median(longest), median(firsts)};
}

}  // namespace

Result<void> bench_prefill(Report& report, const PrefillBench& bench) {
  report.section(fmt::format("{} requests decode, and a prompt of {} tokens comes", bench.decoding, bench.prompt));
  for (const std::uint32_t streams : {2u, 3u}) {
    TROUPE_TRY(const auto figures, run(bench, streams));
    const std::string name = streams == 3 ? "prefill on a stream of its own, " : "one stream for steps, ";
    report.add(name + "gap of decode rows without a prompt", figures.decode_step_ms, "ms");
    report.add(name + "longest gap while the prompt is prefilled", figures.longest_gap_ms, "ms");
    report.add(name + "first token of the prompt", figures.first_token_ms, "ms");
  }
  return success();
}

}  // namespace troupe::tools
