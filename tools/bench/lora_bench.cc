#include "tools/bench/lora_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "actors/runtime.h"
#include "device/models/load.h"

namespace troupe::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = LoraCommand::Kind;

constexpr std::uint64_t kBystander = 1;
constexpr std::uint32_t kLive = 6, kPrompt = 24, kTokens = 16;  // of the others: at least
constexpr int kRounds = 4;
constexpr auto kBetween = std::chrono::milliseconds(400);  // two commands

double milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

Request make_request(std::uint64_t client, std::uint32_t tokens, std::uint32_t vocab) {
  Request q;
  q.client = client;
  for (std::uint32_t i = 0; i < kPrompt; ++i) q.prompt.push_back(static_cast<Token>((client * 7919 + i * std::uint64_t{104729}) % vocab));
  q.stop.max_tokens = tokens;
  q.stop.ignore_eos = true;
  return q;
}

// Keeps kLive requests in the queue, of the base model and of adapters, until it goes.
class Traffic {
 public:
  explicit Traffic(Runtime& runtime) : runtime_(runtime), thread_([this] { run(); }) {}
  ~Traffic() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  // Whether the adapter "changing" is asked for, from here on.
  void ask_for_changing(bool asked) {
    const std::lock_guard lock(mutex_);
    changing_ = asked;
  }
  std::atomic<std::uint32_t> failed{0};

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (std::uint64_t client = kBystander + 1;; ++client) {
      changed_.wait(lock, [&] { return stop_ ? live_ == 0 : live_ < kLive; });
      if (stop_) return;                                                                         // not before the last callback
      Request q = make_request(client, kTokens + client * 7 % 17, runtime_.model().vocab_size);  // not all at once
      if (client % 3 == 0) q.adapter = "standing";
      if (client % 3 == 1 && changing_) q.adapter = "changing";
      ++live_;
      const auto accepted = runtime_.submit(std::move(q), [this](const RequestEvent& e) {
        if (e.finish == nullptr) return;
        failed += e.finish->reason == FinishReason::length ? 0 : 1;
        const std::lock_guard done(mutex_);
        --live_;
        changed_.notify_one();
      });
      if (!accepted) ++failed, --live_;
    }
  }

  Runtime& runtime_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t live_ = 0;
  bool stop_ = false;
  bool changing_ = false;
  std::thread thread_;
};

struct Bystander {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Clock::time_point> tokens;
  bool ended = false;
};

struct Span {
  Clock::time_point begin, end;
};

// Gaps between neighbouring tokens that a span has a part of, longest last.
std::vector<double> gaps_in(const std::vector<Clock::time_point>& tokens, const std::vector<Span>& spans) {
  std::vector<double> out;
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    const bool touches =
        std::any_of(spans.begin(), spans.end(), [&](const Span& s) { return tokens[i - 1] <= s.end && tokens[i] >= s.begin; });
    if (touches) out.push_back(milliseconds(tokens[i] - tokens[i - 1]));
  }
  std::sort(out.begin(), out.end());
  return out;
}

struct Measured {
  const char* name;
  LoraCommand command;
  std::vector<Span> spans{};
  double longest_ms = 0;  // from the command to its answer
};

}  // namespace

Result<void> bench_lora(Report& report, const std::string& model, const std::string& adapters, std::uint32_t threads) {
  device::LoadOptions options;
  options.max_batch = 16;
  options.depth = 2;
  options.threads = threads;
  options.max_loras = 3;
  options.max_lora_rank = 8;
  TROUPE_TRY(auto loaded, device::load_model(model, options));
  Bystander bystander;  // outlives the runtime, which calls it
  RuntimeOptions settings;
  settings.depth = 2;
  settings.max_batch = 16;
  TROUPE_TRY(auto runtime, Runtime::start(settings, std::move(loaded.driver), std::move(loaded.model)));
  const auto command = [](Kind kind, const char* name, const std::string& path = "") {
    LoraCommand c;
    c.kind = kind, c.name = name, c.path = path;
    return c;
  };
  TROUPE_TRY(runtime->lora(command(Kind::promote_disk, "standing", adapters + "/caps")));

  const std::uint32_t most = runtime->model().context_length - kPrompt - 1;
  TROUPE_TRY(runtime->submit(make_request(kBystander, most, runtime->model().vocab_size), [&](const RequestEvent& e) {
    const std::lock_guard lock(bystander.mutex);
    if (e.token != nullptr) bystander.tokens.push_back(Clock::now());
    bystander.ended = bystander.ended || e.finish != nullptr;
    bystander.changed.notify_one();
  }));
  std::vector<Measured> all{{"load", command(Kind::promote_disk, "changing", adapters + "/pirate")},
                            {"rotate", command(Kind::rotate, "changing")},
                            {"load again", command(Kind::promote_disk, "changing", adapters + "/pirate")},
                            {"rotate back", command(Kind::rotate, "")},
                            {"unload", command(Kind::unload, "changing")}};
  std::vector<Span> quiet;
  {
    Traffic traffic(*runtime);
    std::this_thread::sleep_for(kBetween);
    for (int round = 0; round < kRounds; ++round) {
      for (Measured& m : all) {
        if (m.command.kind == Kind::unload) traffic.ask_for_changing(false);
        const Clock::time_point begin = Clock::now();
        TROUPE_TRY(runtime->lora(m.command));
        const Clock::time_point end = Clock::now();
        if (m.command.kind == Kind::promote_disk) traffic.ask_for_changing(true);
        m.spans.push_back({begin, end});
        m.longest_ms = std::max(m.longest_ms, milliseconds(end - begin));
        std::this_thread::sleep_for(kBetween);
        quiet.push_back({end + kBetween / 4, Clock::now()});
      }
    }
    if (traffic.failed != 0)
      return Error{ErrorCode::internal, fmt::format("{} requests did not run to their length", traffic.failed.load())};
  }
  (void)runtime->cancel(kBystander);
  {
    std::unique_lock lock(bystander.mutex);
    bystander.changed.wait(lock, [&] { return bystander.ended; });
    if (bystander.tokens.size() >= most) return Error{ErrorCode::internal, "the bystander ended before the last command"};
  }
  const auto add = [&](const std::string& what, const std::vector<Span>& spans) {
    const std::vector<double> gaps = gaps_in(bystander.tokens, spans);
    if (gaps.empty()) return;
    report.add(what + ": others' gap between tokens, median", gaps[gaps.size() / 2], "ms");
    report.add(what + ": others' gap between tokens, longest", gaps.back(), "ms");
  };
  add("no command", quiet);
  for (const Measured& m : all) {
    report.add(std::string(m.name) + ": command to answer, longest", m.longest_ms, "ms");
    add(m.name, m.spans);
  }
  return runtime->stop();
}

}  // namespace troupe::tools
