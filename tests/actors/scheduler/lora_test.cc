// What the scheduler does with adapters: rows run under the generation that came with the admission, and a hold keeps its
// users off the device until the resume, or until its lease has expired (R9).
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "actors/scheduler/core.h"

namespace troupe::actors {
namespace {

constexpr AdapterRef kAdapter{1, 4};

class SchedulerLora : public testing::Test {
 protected:
  SchedulerLora() {
    ModelInfo m;
    m.vocab_size = 100;
    m.context_length = 64;
    m.block_size = 4;
    m.kv_blocks = 64;
    m.n_slots = 8;
    m.max_depth = 4;
    m.max_rows = 8;
    m.max_step_tokens = 32;
    m.max_logits_rows = 2;
    m.supports_device_token_feed = true;
    m.max_loras = 2;
    core.emplace(SchedulerConfig{}, m);
    facts.total_blocks = facts.free_blocks = 64;
    facts.total_slots = facts.free_slots = 8;
  }
  template <class M>
  void send(const M& m, TimeNs now = 1) {
    core->on(m, now, out);
    core->deliver(out);
    EXPECT_EQ(core->check(), "");
    out.drain([&](auto&& x) {
      using T = std::decay_t<decltype(x)>;
      if constexpr (std::is_same_v<T, Open>)
        opens.push_back(x);
      else if constexpr (std::is_same_v<T, Launch>)
        plans.push_back(x.plan);
      else if constexpr (std::is_same_v<T, Apply>)
        applied.push_back(x.effect);
      else if constexpr (std::is_same_v<T, SetTimer>)
        timer = x.at;
      else if constexpr (std::is_same_v<T, Deliver>)
        for (const Finish& f : x.batch->finishes) ends[f.request.client] = f;
    });
  }
  Admit admission(std::uint64_t client, AdapterRef adapter) {
    Request q;
    q.client = client;
    q.prompt.assign(4, 9);
    q.stop.max_tokens = 20;
    Admit m;
    m.id = {client, client};
    m.request = Shared<Request>::of(std::move(q));
    m.adapter = adapter;
    return m;
  }
  void answer_opens(ErrorCode code = ErrorCode::none) {
    for (const Open& open : std::exchange(opens, {})) {
      Opened o;
      o.request = open.request;
      o.seq = {1, ++sequences};
      o.error.code = code;
      o.facts = facts;
      send(o);
    }
  }
  void settle() {
    send(Accepted{{}, plans.back()->ticket, {}, facts});
    StepResult r;
    r.ticket = plans.back()->ticket;
    for (const Row& row : plans.back()->rows) r.rows.push_back({row.source.is_feed() ? 5u : 9u, 5, CellStatus::ok, r.ticket.tag()});
    send(Settled{{}, Shared<StepResult>::of(r), facts});
  }

  std::optional<SchedulerCore> core;
  SchedulerOutbox out;
  DeviceFacts facts;
  std::vector<Open> opens;
  std::vector<Shared<StepPlan>> plans;
  std::vector<Effect> applied;
  std::map<std::uint64_t, Finish> ends;
  std::uint64_t sequences = 0;
  TimeNs timer = 0;
};

TEST_F(SchedulerLora, SequencesAndRowsCarryWhatTheRequestIsBoundTo) {
  send(admission(1, kAdapter));
  ASSERT_EQ(opens.size(), 1u);
  EXPECT_EQ(opens[0].adapter, kAdapter);
  answer_opens();
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0]->rows[0].adapter, kAdapter);
}

TEST_F(SchedulerLora, ARequestWithoutItsAdapterEndsWithTheReason) {
  Admit m = admission(1, {});
  m.error = {ErrorCode::unknown_adapter, "none"};
  send(m);
  EXPECT_TRUE(opens.empty());
  EXPECT_EQ(ends.at(1).error.code, ErrorCode::unknown_adapter);
  send(admission(2, kAdapter));
  answer_opens(ErrorCode::adapter_gone);
  EXPECT_EQ(ends.at(2).error.code, ErrorCode::adapter_gone);
  send(admission(3, {}));
  answer_opens();
  EXPECT_EQ(plans.size(), 1u) << "others go on";
}

TEST_F(SchedulerLora, AParkedRequestWaitsForItsCancelOrDeadline) {
  Admit m = admission(1, {});
  m.parked = true;
  send(m);
  EXPECT_TRUE(opens.empty());
  send(CancelRequest{{}, {1, 1}});
  EXPECT_EQ(ends.at(1).reason, FinishReason::cancelled);

  Request q = *admission(2, {}).request;
  q.client = 2;
  q.deadline = 100;
  Admit late = admission(2, {});
  late.request = Shared<Request>::of(std::move(q));
  late.parked = true;
  late.waited = 100;
  send(late, 200);
  EXPECT_LE(timer, 200) << "the deadline counts from the submission";
  send(Tick{}, 200);
  EXPECT_EQ(ends.at(2).reason, FinishReason::deadline);
}

TEST_F(SchedulerLora, AHoldPreemptsItsUsersAndTheyResume) {
  send(admission(1, kAdapter));
  send(admission(2, {}));
  answer_opens();
  settle();
  send(admission(3, kAdapter));  // being opened when the hold comes
  send(LoraHold{{}, kAdapter, 1000});
  answer_opens();
  EXPECT_EQ(core->stats().preemptions, 2u);
  EXPECT_EQ(core->waiting(), 2u);
  EXPECT_EQ(core->running(), 1u) << "the base model goes on";
  send(LoraResume{{}, kAdapter, false});
  EXPECT_EQ(opens.size(), 2u);
  for (const Open& open : opens) EXPECT_EQ(open.adapter, kAdapter) << "under what they were admitted with";
}

TEST_F(SchedulerLora, AHoldExpires) {
  send(admission(1, kAdapter));
  answer_opens();
  send(LoraHold{{}, kAdapter, 1000});
  EXPECT_EQ(timer, 1000);
  send(Tick{}, 999);
  EXPECT_TRUE(opens.empty());
  EXPECT_EQ(timer, 1000) << "armed again";
  send(Tick{}, 1000);
  EXPECT_EQ(opens.size(), 1u);
}

TEST_F(SchedulerLora, WhoseAdapterIsGoneEnds) {
  send(admission(1, kAdapter));
  send(admission(2, {2, 5}));
  answer_opens();
  send(LoraHold{{}, kAdapter, 1000});
  send(LoraResume{{}, kAdapter, true});
  EXPECT_EQ(ends.at(1).error.code, ErrorCode::adapter_gone);
  EXPECT_EQ(ends.count(2), 0u);
}

}  // namespace
}  // namespace troupe::actors
