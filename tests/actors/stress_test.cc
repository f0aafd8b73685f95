// Two hundred requests live at a time from four threads, a small KV pool, greedy and host-chosen rows, cancels at any
// moment, client ids used again at once: every stream is the model's, each request ends once, and at the end nothing is
// left. 1500 requests; with TROUPE_STRESS_SECONDS=N in the environment, for so long (how the sanitizers run it).
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/actors/rig.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kThreads = 4, kLiveEach = 50, kRequestsEach = 375;

device::ScriptedOptions script() {
  device::ScriptedOptions s;
  s.eos_per_mille = 5;
  s.context = 256;
  s.kv_blocks = 96;  // 32 sequences of about 100 positions want 224
  return s;
}

struct One {
  Request request;
  std::vector<Token> tokens;
  bool cancelled = false;  // by us
  std::string wrong;
};

// What one thread has live. A slot is a client id; it is used again as soon as its request has ended.
class Caller {
 public:
  Caller(Runtime& runtime, std::uint64_t index, Clock::time_point until)
      : runtime_(runtime), first_client_(1 + index * kLiveEach), until_(until), random_(index + 1), slots_(kLiveEach) {}

  void run() {
    std::uint32_t submitted = 0;
    for (;;) {
      const std::optional<std::size_t> free = take_free();
      const bool more = until_ == Clock::time_point{} ? submitted < kRequestsEach : Clock::now() < until_;
      if (!more && live() == 0) return;
      if (free && more) {
        submit(*free);
        ++submitted;
      } else {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, 2ms);
      }
      if (random_() % 4 == 0) cancel(random_() % kLiveEach);
    }
  }

  std::uint64_t ended() const { return ended_; }
  std::uint64_t cancelled() const { return cancelled_; }
  const std::string& wrong() const { return wrong_; }

 private:
  std::optional<std::size_t> take_free() {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (!slots_[i]) return i;
    return std::nullopt;
  }
  std::size_t live() {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count_if(slots_.begin(), slots_.end(), [](const auto& s) { return s != nullptr; }));
  }

  void submit(std::size_t slot) {
    const auto one = std::make_shared<One>();
    one->request = test::make_request(first_client_ + slot, 1 + random_() % 60, static_cast<std::uint32_t>(1 + random_() % 100), script_);
    // Another prompt each time; some begin alike, for the prefix cache.
    one->request.prompt.back() = static_cast<Token>(random_() % (script_.vocab - 1));
    if (random_() % 4 == 0) {  // chosen by the host; the best token, so that the oracle knows it
      one->request.sampling.temperature = 0.7f;
      one->request.sampling.top_k = 1;
    }
    {
      const std::lock_guard lock(mutex_);
      slots_[slot] = one;
    }
    for (;;) {
      const auto id = runtime_.submit(one->request, [this, slot, one](const RequestEvent& event) { take(slot, *one, event); });
      if (id) return;
      if (id.error().code != ErrorCode::overloaded) {
        const std::lock_guard lock(mutex_);
        wrong_ += "submit: " + id.error().what + "; ";
        slots_[slot] = nullptr;
        return;
      }
      std::this_thread::sleep_for(1ms);
    }
  }

  void cancel(std::size_t slot) {
    {
      const std::lock_guard lock(mutex_);
      if (!slots_[slot]) return;
      slots_[slot]->cancelled = true;
    }
    (void)runtime_.cancel(first_client_ + slot);
  }

  // On the delivery thread.
  void take(std::size_t slot, One& one, const RequestEvent& event) {
    const std::lock_guard lock(mutex_);
    if (slots_[slot].get() != &one) wrong_ += "an event of a request that had ended; ";
    if (event.token != nullptr) {
      if (event.token->index != one.tokens.size()) wrong_ += "a token out of its order; ";
      one.tokens.push_back(event.token->id);
    }
    if (event.finish == nullptr) return;
    const std::vector<Token> want = test::expected(one.request, script_);
    const bool prefix = one.tokens.size() <= want.size() && std::equal(one.tokens.begin(), one.tokens.end(), want.begin());
    const FinishReason reason = event.finish->reason;
    if (!prefix) wrong_ += "client " + std::to_string(one.request.client) + " got other tokens than the model's; ";
    if (reason == FinishReason::cancelled) {
      ++cancelled_;
      if (!one.cancelled) wrong_ += "a request was cancelled by nobody; ";
    } else if ((reason != FinishReason::stop && reason != FinishReason::length) || one.tokens.size() != want.size()) {
      wrong_ += "client " + std::to_string(one.request.client) + " ended by " + name(reason) + " after " +
                std::to_string(one.tokens.size()) + " of " + std::to_string(want.size()) + " tokens: " + event.finish->error.what + "; ";
    }
    ++ended_;
    slots_[slot] = nullptr;
    changed_.notify_one();
  }

  const device::ScriptedOptions script_ = script();
  Runtime& runtime_;
  const std::uint64_t first_client_;
  const Clock::time_point until_;
  std::mt19937_64 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<One>> slots_;
  std::uint64_t ended_ = 0, cancelled_ = 0;
  std::string wrong_;
};

class Stress : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Stress, TwoHundredLiveRequestsAndCancels) {
  RuntimeOptions options;
  options.depth = GetParam();
  test::Rig rig = test::make_rig(options, script());
  const char* seconds = std::getenv("TROUPE_STRESS_SECONDS");
  const Clock::time_point until = seconds == nullptr ? Clock::time_point{} : Clock::now() + std::chrono::seconds(std::atoi(seconds));
  std::vector<std::unique_ptr<Caller>> callers;
  for (std::uint32_t t = 0; t < kThreads; ++t) callers.push_back(std::make_unique<Caller>(*rig.runtime, t, until));
  std::vector<std::thread> threads;
  for (auto& caller : callers) threads.emplace_back([&caller] { caller->run(); });
  for (auto& thread : threads) thread.join();

  std::uint64_t ended = 0, cancelled = 0;
  for (const auto& caller : callers) {
    EXPECT_EQ(caller->wrong(), "");
    ended += caller->ended();
    cancelled += caller->cancelled();
  }
  EXPECT_TRUE(rig.runtime->drain(60s));
  const RuntimeMetrics m = rig.runtime->metrics();
  EXPECT_GT(cancelled, 0u);
  EXPECT_LT(cancelled, ended);
  EXPECT_GT(m.scheduler.preemptions, 0u);
  EXPECT_GT(m.scheduler.host_chosen, 0u);
  EXPECT_EQ(m.running + m.waiting, 0u);
  EXPECT_EQ(m.facts.free_blocks + m.facts.cached_blocks, m.facts.total_blocks);
  EXPECT_EQ(m.facts.free_slots, m.facts.total_slots);
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
  std::printf("%llu requests, %llu cancelled, %llu preemptions, %llu over-runs, %llu messages\n", static_cast<unsigned long long>(ended),
              static_cast<unsigned long long>(cancelled), static_cast<unsigned long long>(m.scheduler.preemptions),
              static_cast<unsigned long long>(m.scheduler.overruns), static_cast<unsigned long long>(m.messages));
}

INSTANTIATE_TEST_SUITE_P(Depths, Stress, testing::Values(1u, 2u, 4u));

}  // namespace
}  // namespace troupe
