// The dispatcher's shell among actors that do nothing: what it answers when one of them dies, or when it does.
#include "actors/dispatcher/actor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

namespace troupe::actors {
namespace {

ModelInfo model() {
  ModelInfo m;
  m.vocab_size = 100;
  m.context_length = 64;
  m.kv_blocks = 16;
  m.n_slots = 4;
  return m;
}

struct Seen {
  std::atomic<int> admits{0}, halts{0}, registers{0}, end_alls{0};
};

class MuteScheduler : public SchedulerActor::base {
 public:
  MuteScheduler(caf::actor_config& config, Seen* seen) : SchedulerActor::base(config), seen_(seen) {}
  behavior_type make_behavior() override {
    return {[](const Attach&) {},        [this](const Admit&) { ++seen_->admits; },
            [](const CancelRequest&) {}, [](const Opened&) {},
            [](const Saved&) {},         [](const Accepted&) {},
            [](const Settled&) {},       [](const Sampled&) {},
            [](const Applied&) {},       [](const Tick&) {},
            [](const Drain&) {},         [this](const Halt&) { ++seen_->halts; },
            [](const AskReport&) {},     [](const LoraHold&) {},
            [](const LoraResume&) {},    [](const Ask&) { return SchedulerFigures{}; }};
  }

 private:
  Seen* seen_;
};

class MuteDelivery : public DeliveryActor::base {
 public:
  MuteDelivery(caf::actor_config& config, Seen* seen) : DeliveryActor::base(config), seen_(seen) {}
  behavior_type make_behavior() override {
    return {[](const AttachFront&) {},
            [this](const Register&) { ++seen_->registers; },
            [](const Deliver&) {},
            [](const Reclaim&) {},
            [](const EndRequests&) {},
            [this](const EndAll&) {
              ++seen_->end_alls;
              return Done{};
            }};
  }

 private:
  Seen* seen_;
};

class MuteSampler : public SamplerActor::base {
 public:
  using SamplerActor::base::base;
  behavior_type make_behavior() override {
    return {[](const Attach&) {}, [](const Sample&) {}};
  }
};

class Dispatching : public testing::Test {
 protected:
  Dispatching() {
    scheduler = system.spawn<MuteScheduler>(&seen);
    sampler = system.spawn<MuteSampler>();
    delivery = system.spawn<MuteDelivery>(&seen);
    dispatcher = system.spawn<DispatcherShell>(std::make_shared<Counts>(), DispatcherConfig{}, model());
    caf::anon_send(dispatcher, AttachFront{std::make_shared<const Doors>(Doors{dispatcher, delivery, {}})});
    Joined joined;
    joined.up.replica = {0, 1};
    joined.doors.requests = scheduler;
    joined.doors.scheduler = scheduler;
    joined.watch = {caf::actor_cast<caf::strong_actor_ptr>(scheduler), caf::actor_cast<caf::strong_actor_ptr>(sampler)};
    caf::anon_send(dispatcher, joined);
  }
  ~Dispatching() override {
    for (const auto& actor : {caf::actor_cast<caf::strong_actor_ptr>(dispatcher), caf::actor_cast<caf::strong_actor_ptr>(scheduler),
                              caf::actor_cast<caf::strong_actor_ptr>(sampler), caf::actor_cast<caf::strong_actor_ptr>(delivery)}) {
      caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    }
  }
  SubmitTo request(std::uint64_t client) {
    Request r;
    r.client = client;
    r.prompt = {1};
    SubmitTo to;
    to.submit.request = Shared<Request>::of(r);
    to.callback = std::make_shared<Callback>();
    return to;
  }
  template <class R, class M>
  std::optional<R> ask(M message) {
    std::optional<R> answer;
    self->request(dispatcher, caf::infinite, std::move(message)).receive([&](R& r) { answer = std::move(r); }, [](caf::error&) {});
    return answer;
  }

  // The mute actors have had what was sent to them.
  void sync() {
    self->request(scheduler, caf::infinite, Ask{}).receive([](SchedulerFigures&) {}, [](caf::error&) { ADD_FAILURE(); });
    self->request(delivery, caf::infinite, EndAll{}).receive([](Done&) {}, [](caf::error&) { ADD_FAILURE(); });
  }

  Seen seen;
  ControlConfig config{ControlOptions{}};
  caf::actor_system system{config};
  DispatcherActor dispatcher;
  SchedulerActor scheduler;
  SamplerActor sampler;
  DeliveryActor delivery;
  caf::scoped_actor self{system};
};

TEST_F(Dispatching, RegistersTheCallbackBeforeItAdmits) {
  const auto reply = ask<SubmitReply>(request(1));
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->error.code, ErrorCode::none);
  EXPECT_NE(reply->ctx.seq, 0u);
  const auto again = ask<SubmitReply>(request(1));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->error.code, ErrorCode::bad_request);
  sync();
  EXPECT_EQ(seen.registers, 1);
  EXPECT_EQ(seen.admits, 1);
}

TEST_F(Dispatching, AnActorsDeathEndsEverythingWithAnError) {
  ASSERT_TRUE(ask<SubmitReply>(request(1)));
  caf::scoped_actor other{system};
  auto drained = other->request(dispatcher, caf::infinite, Drain{});
  caf::anon_send_exit(sampler, caf::exit_reason::user_shutdown);
  bool closed = false;
  drained.receive([](Drained&) { ADD_FAILURE(); }, [&](caf::error&) { closed = true; });
  EXPECT_TRUE(closed);
  const auto reply = ask<SubmitReply>(request(2));
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->error.code, ErrorCode::internal);
  const auto cancelled = ask<CancelReply>(Cancel{{}, 1});
  ASSERT_TRUE(cancelled);
  EXPECT_EQ(cancelled->outcome, CancelOutcome::not_found);
  EXPECT_FALSE(ask<Drained>(Drain{}));
  sync();
  EXPECT_EQ(seen.halts, 1);
  EXPECT_EQ(seen.end_alls, 2);  // the fault's, and this test's
}

TEST_F(Dispatching, ItsOwnEndClosesWhatWaits) {
  ASSERT_TRUE(ask<SubmitReply>(request(1)));
  auto cancel = self->request(dispatcher, caf::infinite, Cancel{{}, 1});  // the mute scheduler never answers
  caf::anon_send_exit(dispatcher, caf::exit_reason::user_shutdown);
  bool closed = false;
  cancel.receive([](CancelReply&) { ADD_FAILURE(); }, [&](caf::error&) { closed = true; });
  EXPECT_TRUE(closed);
  EXPECT_FALSE(ask<SubmitReply>(request(2)));
}

}  // namespace
}  // namespace troupe::actors
