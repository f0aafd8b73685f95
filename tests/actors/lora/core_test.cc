#include "actors/lora/core.h"

#include <gtest/gtest.h>

#include <vector>

namespace troupe::actors {
namespace {

using Kind = LoraCommand::Kind;

template <class M>
const M* last(const std::vector<LoraOutbox::Item>& items) {
  const M* found = nullptr;
  for (const auto& item : items)
    if (const auto* m = std::get_if<M>(&item)) found = m;
  return found;
}

class LoraCoreTest : public testing::Test {
 protected:
  void make(std::uint32_t max_loras, LoraConfig config = {}) {
    ModelInfo model;
    model.max_loras = max_loras;
    core.emplace(config, model);
  }
  void SetUp() override { make(2); }

  template <class M>
  void send(const M& m) {
    out.clear();
    core->on(m, ++now, out);
    EXPECT_EQ(core->check(), "");
  }
  // What the last message sent, of one type; null: none.
  template <class M>
  const M* sent() const {
    return last<M>(out.items());
  }
  std::uint64_t submit(Kind kind, const std::string& name, const std::string& path = "", std::uint32_t slot = 0, TimeNs max_wait = 0,
                       LoraCommand::AtBound at_bound = LoraCommand::AtBound::fail) {
    LoraCommand c;
    c.kind = kind, c.name = name, c.path = path, c.slot = slot, c.max_wait = max_wait, c.at_bound = at_bound;
    send(LoraSubmit{{}, ++ids, c});
    return ids;
  }
  // The whole way of a load; the adapter's reference.
  AdapterRef load(const std::string& name) {
    const std::uint64_t id = submit(Kind::promote_disk, name, "dir");
    EXPECT_NE(sent<LoadAdapter>(), nullptr);
    send(AdapterLoaded{{}, id, {}});
    EXPECT_NE(sent<Lora>(), nullptr);
    reply();
    EXPECT_NE(sent<LoraAnswer>(), nullptr);
    return sent<LoraAnswer>()->ack.adapter;
  }
  void reply(ErrorCode code = ErrorCode::none) {
    LoraReply m;
    m.error.code = code;
    send(m);
  }
  // Null: it waits.
  const Admit* admit(std::uint64_t generation, const std::string& adapter, TimeNs deadline = 0) {
    Request q;
    q.client = generation;
    q.adapter = adapter;
    if (deadline != 0) q.deadline = deadline;
    send(Admit{{}, {generation, generation}, Shared<Request>::of(std::move(q)), 0});
    return sent<Admit>();
  }
  void end(std::uint64_t generation) { send(Ended{{}, {{{generation, generation}, 0}}}); }
  void tick(TimeNs at) {
    now = at;
    send(Tick{});
  }
  ErrorCode code() const { return sent<LoraAnswer>() == nullptr ? ErrorCode::none : sent<LoraAnswer>()->error.code; }

  std::optional<LoraCore> core;
  LoraOutbox out;
  TimeNs now = 0;
  std::uint64_t ids = 0;
};

TEST_F(LoraCoreTest, AnAdapterIsReadFirstAndThenTheTableChanges) {
  const std::uint64_t id = submit(Kind::promote_disk, "pirate", "dir");
  ASSERT_NE(sent<LoadAdapter>(), nullptr);
  EXPECT_EQ(sent<LoadAdapter>()->path, "dir");
  EXPECT_EQ(sent<Lora>(), nullptr);
  const std::uint32_t memory = sent<LoadAdapter>()->slot;
  send(AdapterLoaded{{}, id, {}});
  ASSERT_NE(sent<Lora>(), nullptr);
  EXPECT_EQ(sent<Lora>()->show.slot, memory);
  EXPECT_EQ(sent<Lora>()->hide, AdapterRef{});
  EXPECT_EQ(sent<LoraAnswer>(), nullptr);
  reply();
  ASSERT_NE(sent<LoraAnswer>(), nullptr);
  EXPECT_EQ(sent<LoraAnswer>()->id, id);
  EXPECT_EQ(sent<LoraAnswer>()->ack.slot, 1u);
  ASSERT_NE(admit(1, "pirate"), nullptr);
  EXPECT_EQ(sent<Admit>()->adapter.slot, memory);
}

TEST_F(LoraCoreTest, RequestsAreBoundByNameAndUnknownNamesEnd) {
  const AdapterRef a = load("a"), b = load("b");
  EXPECT_NE(a, b);
  EXPECT_EQ(admit(1, "a")->adapter, a);
  EXPECT_EQ(admit(2, "b")->adapter, b);
  EXPECT_EQ(admit(3, "")->adapter, AdapterRef{});
  EXPECT_EQ(admit(4, "c")->error.code, ErrorCode::unknown_adapter);
}

TEST_F(LoraCoreTest, ARequestWaitsForTheOutcomeOfTheCommandBeforeIt) {
  const std::uint64_t id = submit(Kind::promote_disk, "a", "dir");
  EXPECT_EQ(admit(1, "a"), nullptr);
  EXPECT_NE(admit(2, ""), nullptr) << "the base model is served";
  EXPECT_EQ(core->waiting(), 1u);
  send(AdapterLoaded{{}, id, {}});
  EXPECT_EQ(sent<Admit>(), nullptr);
  reply();
  ASSERT_NE(sent<Admit>(), nullptr);
  EXPECT_EQ(sent<Admit>()->id.generation, 1u);
  EXPECT_NE(sent<Admit>()->adapter.slot, 0u);
  EXPECT_GT(sent<Admit>()->waited, 0);

  submit(Kind::promote_disk, "z", "bad");
  EXPECT_EQ(admit(3, "z"), nullptr);
  EXPECT_NE(admit(4, "a"), nullptr) << "another adapter is served";
  send(AdapterLoaded{{}, ids, {ErrorCode::bad_file, "short"}});
  EXPECT_EQ(code(), ErrorCode::bad_adapter);
  EXPECT_EQ(sent<Admit>()->error.code, ErrorCode::unknown_adapter);
}

TEST_F(LoraCoreTest, AFailedLoadLeavesWhatWasThere) {
  const AdapterRef a = load("a");
  submit(Kind::load_into_slot, "a", "bad", 1);
  send(AdapterLoaded{{}, ids, {ErrorCode::rank_too_large, "rank 99"}});
  EXPECT_EQ(code(), ErrorCode::rank_too_large);
  EXPECT_EQ(admit(1, "a")->adapter, a);
}

TEST_F(LoraCoreTest, UnloadWaitsForTheLastUserAndClosesAdmission) {
  const AdapterRef a = load("a");
  admit(1, "a"), admit(2, "a");
  submit(Kind::unload, "a");
  EXPECT_EQ(sent<Lora>(), nullptr);
  EXPECT_EQ(admit(3, "a"), nullptr) << "admission is closed, so that the users become fewer";
  end(1);
  EXPECT_EQ(sent<Lora>(), nullptr);
  end(2);
  ASSERT_NE(sent<Lora>(), nullptr);
  EXPECT_EQ(sent<Lora>()->hide, a);
  EXPECT_EQ(sent<Lora>()->show, AdapterRef{});
  reply();
  EXPECT_EQ(code(), ErrorCode::none);
  EXPECT_EQ(sent<Admit>()->error.code, ErrorCode::unknown_adapter) << "it waited for the outcome, and that is that there is none";
}

TEST_F(LoraCoreTest, TheWaitIsBounded) {
  const AdapterRef a = load("a");
  admit(1, "a");
  submit(Kind::unload, "a", "", 0, 1000);
  ASSERT_NE(sent<SetTimer>(), nullptr);
  const TimeNs bound = sent<SetTimer>()->at;
  EXPECT_EQ(admit(2, "a"), nullptr);
  tick(bound);
  EXPECT_EQ(code(), ErrorCode::timed_out);
  EXPECT_EQ(sent<LoraAnswer>()->ack.users, 1u);
  EXPECT_GE(sent<LoraAnswer>()->ack.waited_ns, 1000);
  ASSERT_NE(sent<Admit>(), nullptr) << "nothing has changed, and who waited is served";
  EXPECT_EQ(sent<Admit>()->adapter, a);
}

TEST_F(LoraCoreTest, AtTheBoundUsersMayBePreempted) {
  const AdapterRef a = load("a");
  admit(1, "a");
  submit(Kind::unload, "a", "", 0, 1000, LoraCommand::AtBound::preempt);
  tick(sent<SetTimer>()->at);
  ASSERT_NE(sent<LoraHold>(), nullptr);
  EXPECT_EQ(sent<LoraHold>()->adapter, a);
  EXPECT_GT(sent<LoraHold>()->until, now);
  ASSERT_NE(sent<Lora>(), nullptr);
  reply();
  EXPECT_EQ(code(), ErrorCode::none);
  ASSERT_NE(sent<LoraResume>(), nullptr);
  EXPECT_TRUE(sent<LoraResume>()->gone);
  end(1);
}

TEST_F(LoraCoreTest, APreemptionThatDoesNotHelpIsWithdrawn) {
  const AdapterRef a = load("a");
  admit(1, "a");
  submit(Kind::unload, "a", "", 0, 1000, LoraCommand::AtBound::preempt);
  tick(sent<SetTimer>()->at);
  tick(sent<SetTimer>()->at);
  ASSERT_NE(sent<Lora>(), nullptr);
  EXPECT_TRUE(sent<Lora>()->withdraw);
  reply(ErrorCode::not_quiescent);
  EXPECT_EQ(code(), ErrorCode::timed_out);
  ASSERT_NE(sent<LoraResume>(), nullptr);
  EXPECT_FALSE(sent<LoraResume>()->gone);
  EXPECT_EQ(admit(2, "a")->adapter, a);
}

TEST_F(LoraCoreTest, ANameThatIsLoadedAgainIsAnotherGeneration) {
  const AdapterRef first = load("a");
  admit(1, "a");
  const AdapterRef second = load("a");
  EXPECT_NE(first.slot, second.slot);
  EXPECT_GT(second.generation, first.generation);
  EXPECT_EQ(admit(2, "a")->adapter, second);
  submit(Kind::list, "");
  ASSERT_EQ(sent<LoraAnswer>()->ack.adapters.size(), 2u);
  EXPECT_TRUE(sent<LoraAnswer>()->ack.adapters[0].retired);
  EXPECT_EQ(sent<LoraAnswer>()->ack.adapters[0].users, 1u);
  end(1);
  submit(Kind::list, "");
  ASSERT_EQ(sent<LoraAnswer>()->ack.adapters.size(), 1u) << "the old one is gone with its last user";
  load("b");
  EXPECT_EQ(sent<LoraAnswer>()->ack.slot, 1u) << "in its place";
}

TEST_F(LoraCoreTest, TheLeastRecentlyUsedWithoutUsersIsEvicted) {
  load("a"), load("b");
  admit(1, "a"), end(1);
  submit(Kind::promote_disk, "c", "dir");
  send(AdapterLoaded{{}, ids, {}});
  reply();
  EXPECT_EQ(sent<LoraAnswer>()->ack.evicted, "b");
  admit(2, "a"), admit(3, "c");
  submit(Kind::promote_disk, "d", "dir");
  send(AdapterLoaded{{}, ids, {}});
  EXPECT_EQ(code(), ErrorCode::slot_in_use);
  EXPECT_EQ(admit(4, "d")->error.code, ErrorCode::unknown_adapter);
}

TEST_F(LoraCoreTest, ANameWithoutUsersIsLoadedAgainInItsOwnPlaceAndEvictsNobody) {
  load("a"), load("b");
  admit(1, "b"), end(1);  // so that "a" was used longest ago
  submit(Kind::promote_disk, "b", "dir");
  send(AdapterLoaded{{}, ids, {}});
  reply();
  EXPECT_EQ(code(), ErrorCode::none);
  EXPECT_EQ(sent<LoraAnswer>()->ack.evicted, "");
  EXPECT_EQ(admit(2, "a")->error.code, ErrorCode::none);
}

TEST_F(LoraCoreTest, ANameIsLoadedAgainInItsOwnPlaceWhereNoOtherIsWithoutUsers) {
  const AdapterRef a = load("a");
  load("b");
  admit(1, "a"), admit(2, "b");
  submit(Kind::promote_disk, "a", "dir");
  EXPECT_EQ(admit(3, "a"), nullptr);
  send(AdapterLoaded{{}, ids, {}});
  EXPECT_EQ(sent<Lora>(), nullptr);
  EXPECT_EQ(sent<LoraAnswer>(), nullptr) << "its users only become fewer";
  end(1);
  ASSERT_NE(sent<Lora>(), nullptr);
  EXPECT_EQ(sent<Lora>()->hide, a);
  reply();
  EXPECT_EQ(code(), ErrorCode::none);
  EXPECT_EQ(sent<LoraAnswer>()->ack.evicted, "");
  ASSERT_NE(sent<Admit>(), nullptr);
  EXPECT_GT(sent<Admit>()->adapter.generation, a.generation);
}

TEST_F(LoraCoreTest, RotateChangesWhatRequestsWithoutANameGet) {
  const AdapterRef a = load("a");
  submit(Kind::rotate, "a");
  EXPECT_EQ(code(), ErrorCode::none);
  EXPECT_EQ(admit(1, "")->adapter, a);
  submit(Kind::rotate, "nobody");
  EXPECT_EQ(code(), ErrorCode::unknown_adapter);
  EXPECT_EQ(admit(2, "")->adapter, a);
  submit(Kind::rotate, "");
  EXPECT_EQ(admit(3, "")->adapter, AdapterRef{});
}

TEST_F(LoraCoreTest, RotateToAnAdapterThatIsBeingLoadedWaitsForIt) {
  submit(Kind::promote_disk, "a", "dir");
  const std::uint64_t load = ids;
  submit(Kind::rotate, "a");
  EXPECT_EQ(sent<LoraAnswer>(), nullptr);
  EXPECT_EQ(admit(1, ""), nullptr) << "it comes after the rotation";
  send(AdapterLoaded{{}, load, {}});
  reply();
  ASSERT_NE(sent<Admit>(), nullptr);
  EXPECT_NE(sent<Admit>()->adapter.slot, 0u);
}

TEST_F(LoraCoreTest, UnloadOfALoadingAdapterIsDoneAfterTheLoad) {
  submit(Kind::promote_disk, "a", "dir");
  const std::uint64_t load = ids;
  submit(Kind::unload, "a");
  EXPECT_EQ(sent<LoraAnswer>(), nullptr);
  send(AdapterLoaded{{}, load, {}});
  reply();
  ASSERT_NE(sent<Lora>(), nullptr) << "the unload's";
  EXPECT_NE(sent<Lora>()->hide, AdapterRef{});
  reply();
  EXPECT_EQ(code(), ErrorCode::none);
  EXPECT_EQ(admit(1, "a")->error.code, ErrorCode::unknown_adapter);
}

TEST_F(LoraCoreTest, CommandsRunOneAfterTheOtherAndTheirNumberIsLimited) {
  LoraConfig config;
  config.max_commands = 2;
  make(2, config);
  submit(Kind::promote_disk, "a", "dir");
  const std::uint64_t first = ids;
  submit(Kind::promote_disk, "b", "dir");
  EXPECT_EQ(sent<LoadAdapter>(), nullptr);
  submit(Kind::promote_disk, "c", "dir");
  submit(Kind::promote_disk, "d", "dir");
  EXPECT_EQ(code(), ErrorCode::overloaded);
  send(AdapterLoaded{{}, first, {}});
  reply();
  ASSERT_NE(sent<LoadAdapter>(), nullptr);
  EXPECT_EQ(sent<LoadAdapter>()->id, first + 1);
}

TEST_F(LoraCoreTest, ALoadThatDoesNotReturnIsGivenUpAndItsMemoryComesBackLater) {
  submit(Kind::promote_disk, "a", "dir", 0, 1000);
  const std::uint64_t stuck = ids;
  tick(sent<SetTimer>()->at);
  EXPECT_EQ(code(), ErrorCode::timed_out);
  load("b"), load("c");
  submit(Kind::promote_disk, "d", "dir");
  EXPECT_EQ(code(), ErrorCode::overloaded);
  send(AdapterLoaded{{}, stuck, {}});
  EXPECT_EQ(sent<Lora>(), nullptr);
  load("d");
}

TEST_F(LoraCoreTest, ACancelOrADeadlineReachesARequestThatWaits) {
  submit(Kind::promote_disk, "a", "dir");
  EXPECT_EQ(admit(1, "a"), nullptr);
  send(CancelRequest{{}, {1, 1}});
  ASSERT_NE(sent<Admit>(), nullptr);
  EXPECT_TRUE(sent<Admit>()->parked);
  ASSERT_NE(sent<CancelRequest>(), nullptr);
  EXPECT_EQ(admit(2, "a", 500), nullptr);
  tick(now + 500);
  ASSERT_NE(sent<Admit>(), nullptr);
  EXPECT_TRUE(sent<Admit>()->parked);
  EXPECT_GE(sent<Admit>()->waited, 500);
  EXPECT_EQ(core->waiting(), 0u);
}

TEST_F(LoraCoreTest, ADrainFinishesTheCommandsBeforeItAndRefusesLaterOnes) {
  submit(Kind::promote_disk, "a", "dir");
  const std::uint64_t load = ids;
  EXPECT_EQ(admit(1, "a"), nullptr);
  send(Drain{});
  EXPECT_EQ(sent<Drain>(), nullptr);
  submit(Kind::unload, "a");
  EXPECT_EQ(code(), ErrorCode::closed);
  send(AdapterLoaded{{}, load, {}});
  reply();
  EXPECT_NE(sent<Admit>(), nullptr);
  EXPECT_NE(sent<Drain>(), nullptr);
}

TEST_F(LoraCoreTest, TheGlobalPolicyDrainsEverything) {
  LoraConfig config;
  config.policy = LoraPolicy::global;
  make(2, config);
  admit(1, "");
  const std::uint64_t id = submit(Kind::promote_disk, "a", "dir");
  EXPECT_EQ(admit(2, ""), nullptr);
  send(AdapterLoaded{{}, id, {}});
  EXPECT_EQ(sent<Lora>(), nullptr);
  end(1);
  EXPECT_NE(sent<Lora>(), nullptr);
  reply();
  EXPECT_NE(sent<Admit>(), nullptr);
}

TEST_F(LoraCoreTest, WhatIsAskedWrongly) {
  submit(Kind::promote, "a");
  EXPECT_EQ(code(), ErrorCode::no_such_peer);
  submit(Kind::unload, "a");
  EXPECT_EQ(code(), ErrorCode::unknown_adapter);
  submit(Kind::load_into_slot, "a", "dir", 3);
  EXPECT_EQ(code(), ErrorCode::bad_request);
  submit(Kind::load_into_slot, "a", "dir", 0);
  EXPECT_EQ(code(), ErrorCode::bad_request);
  submit(Kind::promote_disk, "a");
  EXPECT_EQ(code(), ErrorCode::bad_request);
  submit(Kind::promote_disk, "", "dir");
  EXPECT_EQ(code(), ErrorCode::bad_request);
}

}  // namespace
}  // namespace troupe::actors
