#include "tests/actors/dispatcher/rig.h"

namespace troupe::actors::test {
namespace {

using Kind = LoraCommand::Kind;

LoraCommand load(std::string name, std::string path = "p") {
  LoraCommand c;
  c.kind = Kind::promote_disk;
  c.name = std::move(name);
  c.path = std::move(path);
  return c;
}
LoraAnswer ok(const LoraSubmit& m) {
  LoraAnswer a;
  a.id = m.id;
  a.replica = m.replica;
  a.ack.name = m.command.name;
  a.ack.adapter = {1, 1};
  return a;
}
LoraAnswer failed(const LoraSubmit& m) {
  LoraAnswer a = ok(m);
  a.error = {ErrorCode::timed_out, "late"};
  return a;
}

struct LoraRig : Rig {
  explicit LoraRig(std::uint32_t n) : Rig(n, {}, 4) {}
  Sent submit_command(std::uint64_t id, const LoraCommand& c) { return on(LoraSubmit{{}, id, c}); }
  // Each replica does it.
  LoraAnswer roll(std::uint64_t id, const LoraCommand& c) {
    Sent sent = submit_command(id, c);
    while (!all<LoraSubmit>(sent).empty()) sent = on(ok(one<LoraSubmit>(sent)));
    return one<LoraAnswer>(sent);
  }
};

TEST(LoraRoll, OneReplicaAfterTheOther) {
  LoraRig r(3);
  Sent sent = r.submit_command(1, load("a"));
  for (std::uint32_t i = 0; i < 3; ++i) {
    const LoraSubmit m = one<LoraSubmit>(sent);
    EXPECT_EQ(m.replica, (ReplicaRef{i, 1}));
    EXPECT_EQ(m.id, 1u);
    EXPECT_TRUE(all<LoraAnswer>(sent).empty());
    sent = r.on(ok(m));
  }
  const LoraAnswer a = one<LoraAnswer>(sent);
  EXPECT_EQ(a.error.code, ErrorCode::none);
  ASSERT_EQ(a.ack.replicas.size(), 3u);
  EXPECT_EQ(a.ack.replicas[2].name, "host:2");
  EXPECT_EQ(r.core.replicas()[1].adapters, (std::vector<std::string>{"a"}));
}

TEST(LoraRoll, ARequestAfterItGoesWhereItHasBeen) {
  LoraRig r(2);
  Sent sent = r.submit_command(1, load("a"));
  // Replica 1 has less to do, and has not been told of the command.
  EXPECT_EQ(one<Admit>(r.submit(1, 900, {}, "")).replica.index, 0u);
  EXPECT_EQ(one<Admit>(r.submit(2, 10, {}, "a")).replica.index, 0u);
  EXPECT_EQ(one<Admit>(r.submit(3, 10, {}, "")).replica.index, 1u);  // it is of no concern to this one
  sent = r.on(ok(one<LoraSubmit>(sent)));
  (void)r.on(ok(one<LoraSubmit>(sent)));
  EXPECT_EQ(one<Admit>(r.submit(4, 10, {}, "a")).replica.index, 1u);
}

TEST(LoraRoll, OnlyWhereTheAdapterIs) {
  LoraRig r(2);
  LoraCommand c = load("a");
  c.replica = "host:1";
  (void)r.roll(1, c);
  for (std::uint64_t client = 1; client < 4; ++client) EXPECT_EQ(one<Admit>(r.submit(client, 500, {}, "a")).replica.index, 1u);
  c.replica = "host:7";
  EXPECT_EQ(one<LoraAnswer>(r.submit_command(2, c)).error.code, ErrorCode::not_found);
}

TEST(LoraRoll, AFailureIsOneReplicasAndIsSaid) {
  LoraRig r(2);
  Sent sent = r.submit_command(1, load("a"));
  sent = r.on(ok(one<LoraSubmit>(sent)));
  sent = r.on(failed(one<LoraSubmit>(sent)));
  const LoraAnswer a = one<LoraAnswer>(sent);
  EXPECT_EQ(a.error.code, ErrorCode::timed_out);
  EXPECT_EQ(a.error.what, "host:1: late");
  ASSERT_EQ(a.ack.replicas.size(), 2u);
  EXPECT_EQ(a.ack.replicas[0].error.code, ErrorCode::none);
  EXPECT_FALSE(a.ack.replicas[0].rolled_back);
  EXPECT_EQ(r.core.replicas()[0].adapters.size(), 1u);
}

TEST(LoraRoll, RolledBackOnRequest) {
  LoraRig r(3);
  (void)r.roll(1, load("a", "old"));
  LoraCommand c = load("a", "new");
  c.roll_back = true;
  Sent sent = r.submit_command(2, c);
  sent = r.on(ok(one<LoraSubmit>(sent)));
  sent = r.on(failed(one<LoraSubmit>(sent)));
  const LoraSubmit undo = one<LoraSubmit>(sent);  // the third is not asked
  EXPECT_EQ(undo.replica, (ReplicaRef{0, 1}));
  EXPECT_EQ(undo.id, 1u);
  EXPECT_EQ(undo.command.path, "old");
  const LoraAnswer a = one<LoraAnswer>(r.on(ok(undo)));
  EXPECT_EQ(a.error.code, ErrorCode::timed_out);
  EXPECT_TRUE(a.ack.replicas.at(0).rolled_back);

  LoraCommand other = load("b");
  other.roll_back = true;
  sent = r.submit_command(3, other);
  sent = r.on(ok(one<LoraSubmit>(sent)));
  sent = r.on(failed(one<LoraSubmit>(sent)));
  EXPECT_EQ(one<LoraSubmit>(sent).command.kind, Kind::unload);
  EXPECT_EQ(one<LoraSubmit>(sent).command.name, "b");
}

TEST(LoraRoll, ALostReplicaHoldsNothingUp) {
  LoraRig r(2);
  Sent sent = r.submit_command(1, load("a"));
  sent = r.on(ReplicaLost{{}, {0, 1}, {ErrorCode::device_lost, "gone"}});
  const LoraSubmit second = one<LoraSubmit>(sent);
  EXPECT_EQ(second.replica, (ReplicaRef{1, 1}));
  const LoraAnswer a = one<LoraAnswer>(r.on(ok(second)));
  EXPECT_EQ(a.ack.replicas.at(0).error.code, ErrorCode::unavailable);
  EXPECT_EQ(a.ack.replicas.at(1).error.code, ErrorCode::none);
}

TEST(LoraRoll, ASilentReplicaHoldsNothingUpForLong) {
  LoraRig r(2);
  (void)r.submit_command(1, load("a"));
  const Sent sent = r.until(r.now + 400);
  EXPECT_EQ(one<StopReplica>(sent).replica, (ReplicaRef{0, 1}));
  EXPECT_EQ(one<LoraSubmit>(sent).replica, (ReplicaRef{1, 1}));
}

// The command was lost with it, and nobody has done it yet when it is back.
TEST(LoraRoll, AReplicaThatComesBackMeanwhileIsAskedAgain) {
  LoraRig r(2);
  (void)r.submit_command(1, load("a"));
  const LoraSubmit second = one<LoraSubmit>(r.on(ReplicaLost{{}, {0, 1}, {ErrorCode::device_lost, "gone"}}));
  (void)r.on(ReplicaDown{{}, {0, 1}, {}});
  for (TimeNs end = r.now + 150; r.now < end; r.now += 10) (void)r.on(Tick{});
  (void)r.on(ReplicaUp{{}, {0, 2}, "x"});
  EXPECT_EQ(r.state(0), ReplicaState::up);
  EXPECT_EQ(one<Admit>(r.submit(1, 10, {}, "a")).replica.index, 1u);  // behind the command
  const LoraSubmit again = one<LoraSubmit>(r.on(ok(second)));
  EXPECT_EQ(again.replica, (ReplicaRef{0, 2}));
  const LoraAnswer a = one<LoraAnswer>(r.on(ok(again)));
  EXPECT_EQ(a.error.code, ErrorCode::none);
  ASSERT_EQ(a.ack.replicas.size(), 2u);
  for (const LoraOutcome& o : a.ack.replicas) EXPECT_EQ(o.error.code, ErrorCode::none);
}

TEST(LoraRoll, AStartedReplicaIsGivenWhatTheOthersHave) {
  LoraRig r(2);
  (void)r.roll(1, load("a"));
  (void)r.roll(2, load("b"));
  (void)r.roll(3, load("a", "newer"));
  LoraCommand c;
  c.kind = Kind::rotate;
  c.name = "b";
  (void)r.roll(4, c);
  (void)r.on(ReplicaLost{{}, {0, 1}, {ErrorCode::device_lost, "gone"}});
  (void)r.on(ReplicaDown{{}, {0, 1}, {}});
  (void)r.until(r.now + 200);
  std::vector<std::uint64_t> ids;
  Sent sent = r.on(ReplicaUp{{}, {0, 2}, "x"});
  while (!all<LoraSubmit>(sent).empty()) {
    EXPECT_EQ(r.state(0), ReplicaState::starting);
    ids.push_back(one<LoraSubmit>(sent).id);
    sent = r.on(ok(one<LoraSubmit>(sent)));
  }
  EXPECT_EQ(ids, (std::vector<std::uint64_t>{2, 3, 4}));
  EXPECT_EQ(r.state(0), ReplicaState::up);
}

TEST(LoraRoll, ARequestGoesOnWithTheSameAdapterOrEnds) {
  LoraRig r(2);
  (void)r.roll(1, load("a"));
  const Admit a = one<Admit>(r.submit(1, 10, {}, "a"));
  (void)r.on(LoraBound{{}, {a.id, 0}, 1, a.replica});
  (void)r.on(ReplicaLost{{}, a.replica, {ErrorCode::device_lost, "gone"}});
  const Admit again = one<Admit>(r.on(Reclaimed{{}, {{a.id, 1, {5}, false}}}));
  EXPECT_EQ(again.adapter_command, 1u);

  // Nobody said what it was bound to, and its client has tokens of it.
  const Admit b = one<Admit>(r.submit(2, 10, {}, "a"));
  (void)r.on(ReplicaLost{{}, b.replica, {ErrorCode::device_lost, "gone"}});
  const Sent sent = r.on(Reclaimed{{}, {{again.id, 2, {5}, true}, {b.id, 1, {5}, false}}});
  EXPECT_EQ(one<EndRequests>(sent).finishes.at(0).error.code, ErrorCode::adapter_gone);
}

// One that took it over has not the adapter, says so, and is lost before it has ended the request.
TEST(LoraRoll, WhatARequestIsBoundToIsNotForgottenOnTheWay) {
  LoraRig r(3);
  (void)r.roll(1, load("a"));
  const Admit first = one<Admit>(r.submit(1, 10, {}, "a"));
  (void)r.on(LoraBound{{}, {first.id, 0}, 1, first.replica});
  (void)r.on(ReplicaLost{{}, first.replica, {ErrorCode::device_lost, "gone"}});
  const Admit second = one<Admit>(r.on(Reclaimed{{}, {{first.id, 1, {5}, false}}}));
  (void)r.on(LoraBound{{}, {first.id, 1}, 0, second.replica});
  (void)r.on(ReplicaLost{{}, second.replica, {ErrorCode::device_lost, "gone"}});
  EXPECT_EQ(one<Admit>(r.on(Reclaimed{{}, {{first.id, 2, {5}, false}}})).adapter_command, 1u);
}

TEST(LoraRoll, PromoteTakesItFromThePeersMemory) {
  LoraRig r(2);
  LoraCommand c = load("a");
  c.replica = "host:0";
  (void)r.roll(1, c);
  LoraCommand promote;
  promote.kind = Kind::promote;
  promote.name = "a";
  promote.peer = "host:0";
  Sent sent = r.submit_command(2, promote);
  const FetchAdapter fetch = one<FetchAdapter>(sent);
  EXPECT_EQ(fetch.replica, (ReplicaRef{0, 1}));
  EXPECT_EQ(fetch.name, "a");
  sent = r.on(AdapterFetched{{}, 2, Shared<AdapterImage>::of(AdapterImage{{1, 2}}), {}, {0, 1}});
  const LoraSubmit m = one<LoraSubmit>(sent);
  EXPECT_EQ(m.replica, (ReplicaRef{1, 1}));
  EXPECT_EQ(m.id, 1u);  // it is the same adapter: requests may move between them
  ASSERT_TRUE(m.image);
  EXPECT_EQ(one<LoraAnswer>(r.on(ok(m))).error.code, ErrorCode::none);

  promote.peer = "host:9";
  EXPECT_EQ(one<LoraAnswer>(r.submit_command(3, promote)).error.code, ErrorCode::no_such_peer);
}

TEST(LoraRoll, AListWaitsForNoCommand) {
  LoraRig r(2);
  (void)r.submit_command(1, load("a"));
  LoraCommand list;
  Sent sent = r.submit_command(2, list);
  for (std::uint32_t i = 0; i < 2; ++i) {
    const LoraSubmit m = one<LoraSubmit>(sent);
    EXPECT_EQ(m.id, 2u);
    sent = r.on(ok(m));
  }
  EXPECT_EQ(one<LoraAnswer>(sent).ack.replicas.size(), 2u);
}

}  // namespace
}  // namespace troupe::actors::test
