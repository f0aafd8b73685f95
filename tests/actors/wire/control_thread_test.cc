#include "actors/wire/control_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "actors/wire.h"

namespace troupe::actors {
namespace {

using Counter = caf::typed_actor<caf::reacts_to<Tick>, caf::reacts_to<SetTimer>, caf::replies_to<Ask>::with<std::uint64_t>>;

// Counts Ticks; answers Ask with the count. SetTimer: asks its timer for a Tick then.
class CounterActor : public Counter::base {
 public:
  CounterActor(caf::actor_config& config, std::atomic<std::thread::id>* ran_on, std::atomic<TimeNs>* last_tick = nullptr)
      : Counter::base(config), post_(Sender::runtime, std::make_shared<Counts>()), ran_on_(ran_on), last_tick_(last_tick) {
    keep_quiet(*this);
  }
  behavior_type make_behavior() override {
    return {[this](const Tick& m) {
              *ran_on_ = std::this_thread::get_id();
              if (m.ctx.seq != 0 && !timer_.due(now_ns(), *this, post_)) return;
              ++count_;
              if (last_tick_ != nullptr) *last_tick_ = now_ns();
            },
            [this](const SetTimer& m) { timer_.set(m.at, *this, post_); }, [this](const Ask&) { return count_; }};
  }

 private:
  Post post_;
  Timer timer_;
  std::atomic<std::thread::id>* ran_on_;
  std::atomic<TimeNs>* last_tick_;
  std::uint64_t count_ = 0;
};

std::uint64_t ask(caf::actor_system& system, const Counter& counter) {
  caf::scoped_actor self{system};
  std::uint64_t n = 0;
  self->request(counter, caf::infinite, Ask{}).receive([&](std::uint64_t x) { n = x; }, [](caf::error&) { ADD_FAILURE(); });
  return n;
}

class ControlThread : public testing::TestWithParam<int> {};

// Parked or spinning, no message of any thread is lost.
TEST_P(ControlThread, LosesNothing) {
  ControlConfig config({std::chrono::microseconds{GetParam()}, -1});
  caf::actor_system system(config);
  std::atomic<std::thread::id> ran_on{};
  const Counter counter = system.spawn<CounterActor>(&ran_on);
  std::vector<std::thread> senders;
  for (int t = 0; t < 3; ++t) {
    senders.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        caf::anon_send(counter, Tick{});
        if (i % 64 == 0) std::this_thread::yield();
      }
    });
  }
  for (auto& sender : senders) sender.join();
  EXPECT_EQ(ask(system, counter), 6000u);
  caf::anon_send_exit(counter, caf::exit_reason::user_shutdown);
}
INSTANTIATE_TEST_SUITE_P(SpinUs, ControlThread, testing::Values(0, 20, 3000));

TEST(ControlThreads, AreOnePerSystemAndKnowTheirOwnSettings) {
  ControlConfig a({std::chrono::microseconds{50}, -1});
  ControlConfig b({});
  caf::actor_system one(a);
  caf::actor_system two(b);
  std::atomic<std::thread::id> ran_on[4];
  const Counter counters[4] = {one.spawn<CounterActor>(&ran_on[0]), one.spawn<CounterActor>(&ran_on[1]),
                               two.spawn<CounterActor>(&ran_on[2]), two.spawn<CounterActor>(&ran_on[3])};
  for (int i = 0; i < 4; ++i) {
    caf::anon_send(counters[i], Tick{});
    EXPECT_EQ(ask(i < 2 ? one : two, counters[i]), 1u);
  }
  EXPECT_EQ(ran_on[0].load(), ran_on[1].load());
  EXPECT_EQ(ran_on[2].load(), ran_on[3].load());
  EXPECT_NE(ran_on[0].load(), ran_on[2].load());
  EXPECT_FALSE(one.has_middleman());
  for (const Counter& counter : counters) caf::anon_send_exit(counter, caf::exit_reason::user_shutdown);
}

using Poller = caf::typed_actor<caf::replies_to<Ask>::with<std::uint64_t>, caf::reacts_to<Tick>>;

// Sets a hook that sends a Tick at its third call and then lets the thread park; Ask is answered by that Tick.
class PollerActor : public AtHome<Poller> {
 public:
  PollerActor(caf::actor_config& config, Home* home) : AtHome(config, home), post_(Sender::runtime, std::make_shared<Counts>()) {}
  behavior_type make_behavior() override {
    return {[this](const Ask&) {
              auto promise = make_response_promise<std::uint64_t>();
              answers_.emplace_back(promise);
              home_->idle_hook = {[](void* self, caf::execution_unit* unit) { return static_cast<PollerActor*>(self)->poll(unit); }, this};
              return promise;
            },
            [this](const Tick&) {
              home_->idle_hook = {};
              for (auto& answer : answers_) answer.give(calls_);
              answers_.clear();
            }};
  }

 private:
  bool poll(caf::execution_unit* unit) {
    if (++calls_ < 3) return true;
    if (calls_ == 3) post_.send(caf::actor_cast<Poller>(this), Tick{}, unit);
    return false;
  }
  Post post_;
  std::vector<Answer<std::uint64_t>> answers_;
  std::uint64_t calls_ = 0;
};

// Sets a hook, when told by a Tick, that always has something to wait for; Ask takes it away and says how often it was called.
class EndlessPollerActor : public AtHome<Poller> {
 public:
  EndlessPollerActor(caf::actor_config& config, Home* home, std::atomic<std::uint64_t>* calls) : AtHome(config, home), calls_(calls) {}
  behavior_type make_behavior() override {
    return {[this](const Ask&) {
              home_->idle_hook = {};
              return calls_->load();
            },
            [this](const Tick&) {
              home_->idle_hook = {[](void* self, caf::execution_unit*) {
                                    ++*static_cast<EndlessPollerActor*>(self)->calls_;
                                    return true;
                                  },
                                  this};
            }};
  }

 private:
  std::atomic<std::uint64_t>* calls_;
};

TEST(ControlThreads, PollTheIdleHookWithoutSpinning) {
  ControlConfig config({{}, -1, 2});
  const auto system = start_system(config);
  for (std::size_t thread = 0; thread < 2; ++thread) {
    const Poller poller = system->spawn<PollerActor>(&config.home(thread));
    caf::scoped_actor self{*system};
    std::uint64_t calls = 0;
    self->request(poller, caf::infinite, Ask{}).receive([&](std::uint64_t n) { calls = n; }, [](caf::error&) { ADD_FAILURE(); });
    EXPECT_GE(calls, 3u);
    caf::anon_send_exit(poller, caf::exit_reason::user_shutdown);
  }
}

// A thread that does not spin looks at a GPU's events every kPollInterval, and is parked between.
TEST(ControlThreads, PollAtIntervalsWhenTheyDoNotSpin) {
  ControlConfig config({{}, -1, 1});
  const auto system = start_system(config);
  std::atomic<std::uint64_t> calls{0};
  Home& home = config.home(0);
  const auto begin = std::chrono::steady_clock::now();
  const Poller poller = system->spawn<EndlessPollerActor>(&home, &calls);
  caf::anon_send(poller, Tick{});
  while (calls < 20) std::this_thread::yield();
  caf::scoped_actor self{*system};
  std::uint64_t seen = 0;
  self->request(poller, caf::infinite, Ask{}).receive([&](std::uint64_t n) { seen = n; }, [](caf::error&) { ADD_FAILURE(); });
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  // A look after each of the three messages, and one when the wait begins.
  EXPECT_LE(seen, static_cast<std::uint64_t>(elapsed / kPollInterval) + 8);
  caf::anon_send_exit(poller, caf::exit_reason::user_shutdown);
}

using Passer = caf::typed_actor<caf::reacts_to<Attach>, caf::reacts_to<Tick>, caf::replies_to<Ask>::with<std::uint64_t>>;

// Passes a Tick to the next of its ring until it has had its share of them; writes down a thread that is not its first.
class PasserActor final : public AtHome<Passer> {
 public:
  PasserActor(caf::actor_config& config, Home* home, const Passer* next, std::uint64_t share, std::atomic<bool>* astray)
      : AtHome(config, home), next_(next), share_(share), astray_(astray), post_(Sender::runtime, std::make_shared<Counts>()) {
    keep_quiet(*this);
  }
  std::thread::id thread() const { return thread_; }
  behavior_type make_behavior() override {
    thread_ = std::this_thread::get_id();
    return {[](const Attach&) {},
            [this](const Tick&) {
              check();
              if (++taken_ <= share_) post_.send(*next_, Tick{}, context());
              if (taken_ == share_) answers_.clear();  // an error: all have their share
            },
            [this](const Ask&) {
              check();
              auto promise = make_response_promise<std::uint64_t>();
              if (taken_ < share_) {
                answers_.emplace_back(promise);
              } else {
                promise.deliver(taken_);
              }
              return promise;
            }};
  }

 private:
  void check() {
    if (std::this_thread::get_id() != thread_) *astray_ = true;
  }
  const Passer* next_;
  std::uint64_t share_;
  std::atomic<bool>* astray_;
  Post post_;
  std::thread::id thread_;
  std::uint64_t taken_ = 0;
  std::vector<Answer<std::uint64_t>> answers_;
};

// Whoever sends (an actor on another control thread, on the same one, a detached one, a thread that is none): an actor stays
// on its home, and nothing is lost.
TEST(ControlThreads, AreHomesThatActorsDoNotLeave) {
  for (const int spin_us : {0, 50}) {
    ControlConfig config({std::chrono::microseconds{spin_us}, -1, 3});
    const auto system = start_system(config);
    constexpr std::size_t kRing = 7;
    std::atomic<bool> astray{false};
    std::vector<Passer> ring(kRing);
    for (std::size_t i = 0; i < kRing; ++i) {
      const Passer* next = &ring[(i + 1) % kRing];
      if (i == 5) {
        ring[i] = system->spawn<PasserActor, caf::detached>(nullptr, next, 3000, &astray);
      } else {
        ring[i] = system->spawn<PasserActor>(&config.home(i % 3), next, 3000, &astray);
      }
    }
    for (int i = 0; i < 4; ++i) {
      for (const Passer& p : ring) caf::anon_send(p, Tick{});
    }
    caf::scoped_actor self{*system};
    for (const Passer& p : ring) {
      self->request(p, caf::infinite, Ask{}).receive([](std::uint64_t n) { EXPECT_GE(n, 3000u); }, [](caf::error&) {});
    }
    EXPECT_FALSE(astray);
    std::set<std::thread::id> threads;
    for (const Passer& p : ring) threads.insert(dynamic_cast<PasserActor*>(caf::actor_cast<caf::abstract_actor*>(p))->thread());
    EXPECT_EQ(threads.size(), 4u);
    for (const Passer& p : ring) {
      caf::anon_send_exit(p, caf::exit_reason::user_shutdown);
      self->wait_for(p);
    }
  }
}

// While it would only spin, and no longer than there is any; a thread that parks at once leaves it alone.
TEST(ControlThreads, DoIdleWorkInsteadOfSpinning) {
  for (const bool spins : {true, false}) {
    ControlConfig config({std::chrono::milliseconds{spins ? 1 : 0}, -1});
    const auto pieces = std::make_shared<std::atomic<int>>(0);
    config.idle_work[0] = {[](void* n) { return ++*static_cast<std::atomic<int>*>(n) % 5 != 0; }, pieces};
    caf::actor_system system(config);
    std::atomic<std::thread::id> ran_on{};
    const Counter counter = system.spawn<CounterActor>(&ran_on);
    caf::anon_send(counter, Tick{});
    EXPECT_EQ(ask(system, counter), 1u);
    while (spins && *pieces < 5) std::this_thread::yield();
    if (!spins) {
      EXPECT_EQ(*pieces, 0);
    }
    caf::anon_send_exit(counter, caf::exit_reason::user_shutdown);
  }
}

// Times that have passed by the time the thread looks share a Tick.
TEST(Timer, TicksOncePerTimeAtMostAndAfterTheLast) {
  ControlConfig config({});
  caf::actor_system system(config);
  std::atomic<std::thread::id> ran_on{};
  std::atomic<TimeNs> last_tick{0};
  const Counter counter = system.spawn<CounterActor>(&ran_on, &last_tick);
  const TimeNs start = now_ns();
  for (int i = 0; i < 5; ++i) caf::anon_send(counter, SetTimer{start + 2'000'000});
  caf::anon_send(counter, SetTimer{start + 30'000'000});
  caf::anon_send(counter, SetTimer{start + 1'000'000});
  while (last_tick < start + 30'000'000) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  const std::uint64_t ticks = ask(system, counter);
  EXPECT_GE(ticks, 1u);
  EXPECT_LE(ticks, 3u);
  caf::anon_send_exit(counter, caf::exit_reason::user_shutdown);
}

using Forgetful = caf::typed_actor<caf::replies_to<Ask>::with<std::uint64_t>>;

TEST(Answer, ThatIsDroppedIsAnError) {
  struct Impl : Forgetful::base {
    using Forgetful::base::base;
    behavior_type make_behavior() override {
      return {[this](const Ask&) {
        auto promise = make_response_promise<std::uint64_t>();
        const Answer<std::uint64_t> dropped(promise);
        return promise;
      }};
    }
  };
  ControlConfig config({});
  caf::actor_system system(config);
  const Forgetful actor = system.spawn<Impl>();
  caf::scoped_actor self{system};
  bool failed = false;
  self->request(actor, caf::infinite, Ask{}).receive([](std::uint64_t) { ADD_FAILURE(); }, [&](caf::error&) { failed = true; });
  EXPECT_TRUE(failed);
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
}

TEST(Answer, HeldByAnActorThatEndsIsAnError) {
  struct Impl : Forgetful::base {
    using Forgetful::base::base;
    std::vector<Answer<std::uint64_t>> held;
    behavior_type make_behavior() override {
      return {[this](const Ask&) {
        auto promise = make_response_promise<std::uint64_t>();
        held.emplace_back(promise);
        return promise;
      }};
    }
    void on_exit() override { held.clear(); }
  };
  ControlConfig config({});
  caf::actor_system system(config);
  const Forgetful actor = system.spawn<Impl>();
  caf::scoped_actor self{system};
  auto pending = self->request(actor, caf::infinite, Ask{});
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  bool failed = false;
  pending.receive([](std::uint64_t) { ADD_FAILURE(); }, [&](caf::error&) { failed = true; });
  EXPECT_TRUE(failed);
}

}  // namespace
}  // namespace troupe::actors
