// Each core of a link alone.
#include "actors/dispatcher/supervision.h"
#include "tests/actors/link/core_rig.h"

namespace troupe::actors::link {
namespace {
struct Remote {
  RemoteCore core{remote_config()};
  RemoteOutbox out;
  TimeNs timer = 0;
  template <class M>
  Texts on(const M& m, TimeNs now = 0) {
    core.on(m, now, out);
    return drained(out, &timer);
  }
  Texts hears(std::uint32_t connection, LinkMessage m, TimeNs now = 0) {
    core.on(connection, std::move(m), now, out);
    return drained(out, &timer);
  }
  void bring_up() {
    on(StartReplica{{}, kRef});
    on(Connected{1});
    hears(1, welcome());
    EXPECT_TRUE(core.up());
  }
};

TEST(Remote, ComesUpAndPassesMessagesUnderTheDispatchersName) {
  Remote r;
  EXPECT_EQ(r.on(StartReplica{{}, kRef}), Texts{"connect 1"});
  EXPECT_EQ(r.on(admit(1, 1, kRef)), Texts{}) << "not up yet";
  EXPECT_EQ(r.on(Connected{1}), Texts{"> Hello r2.5"});
  EXPECT_EQ(r.hears(1, welcome()), Texts{"ReplicaUp r2.5"});
  EXPECT_EQ(r.on(admit(1, 1, kRef)), Texts{"> Admit 1#1 r2.5"});
  EXPECT_EQ(r.on(admit(2, 1, {2, 4})), Texts{}) << "of an earlier life";
  Ended ended;
  ended.requests = {{{1, 1}, 0}};
  ended.replica = kLocal;
  EXPECT_EQ(r.hears(1, ended), Texts{"Ended 1#1 r2.5"});
  EXPECT_EQ(r.hears(1, Deliver{{}, Shared<TokenBatch>::of({})}), Texts{"Deliver"});
  EXPECT_EQ(r.hears(1, Heartbeat{}), Texts{});
}

TEST(Remote, IsLostOnceHoweverItWasLost) {
  for (int how = 0; how < 4; ++how) {
    Remote r;
    r.bring_up();
    Texts lost;
    if (how == 0) lost = r.on(Disconnected{1, {ErrorCode::io_failed, "reset"}});
    if (how == 1) lost = r.on(Tick{}, 300 * kMs);
    if (how == 2) lost = r.hears(1, Refused{{ErrorCode::closed, "the node stops"}});
    if (how == 3) lost = r.hears(1, ReplicaLost{{}, kLocal, {ErrorCode::device_lost, "gone"}});
    ASSERT_FALSE(lost.empty());
    EXPECT_EQ(lost.back().substr(0, 16), "ReplicaLost r2.5") << how;
    EXPECT_EQ(r.on(Disconnected{1, {ErrorCode::closed, ""}}), Texts{}) << how;
    EXPECT_EQ(r.on(Tick{}, 10'000 * kMs), Texts{}) << how;
    EXPECT_EQ(r.hears(1, Deliver{{}, Shared<TokenBatch>::of({})}), Texts{}) << "what it still says counts no more, " << how;
    EXPECT_EQ(r.on(admit(1, 1, kRef)), Texts{});
    EXPECT_EQ(r.on(StopReplica{{}, kRef}), Texts{"ReplicaDown r2.5 none"});
    EXPECT_EQ(r.on(StartReplica{{}, {2, 6}}), Texts{"connect 2"});
    EXPECT_EQ(r.on(Disconnected{1, {}}), Texts{}) << "the old connection's end is not the new one's";
    EXPECT_EQ(r.on(Connected{2}), Texts{"> Hello r2.6"});
  }
}

TEST(Remote, SendsHeartbeatsAndHearsThem) {
  Remote r;
  r.bring_up();
  for (TimeNs now = 100 * kMs; now < 2000 * kMs; now += 100 * kMs) {
    EXPECT_EQ(r.on(Tick{}, now), Texts{"> Heartbeat"});
    EXPECT_EQ(r.timer, now + 100 * kMs);
    r.hears(1, Heartbeat{}, now);
  }
  EXPECT_EQ(r.on(Tick{}, 2100 * kMs), Texts{"> Heartbeat"});
  EXPECT_EQ(r.on(Tick{}, 2199 * kMs), Texts{"> Heartbeat"});
  EXPECT_EQ(r.on(Tick{}, 2201 * kMs), (Texts{"disconnect 1", "ReplicaLost r2.5 unavailable"})) << "silent since 1900";
}

TEST(Remote, DoesNotWaitForEverForANode) {
  Remote r;
  r.on(StartReplica{{}, kRef});
  EXPECT_EQ(r.on(Disconnected{1, {ErrorCode::io_failed, "refused"}}), Texts{"ReplicaDown r2.5 unavailable"});
  r.on(StartReplica{{}, {2, 6}});
  r.on(Connected{2});
  for (TimeNs now = 100 * kMs; now < 1000 * kMs; now += 100 * kMs) {
    r.hears(2, Heartbeat{}, now);
    EXPECT_EQ(r.on(Tick{}, now), Texts{"> Heartbeat"});
  }
  EXPECT_EQ(r.on(Tick{}, 1000 * kMs), (Texts{"disconnect 2", "ReplicaDown r2.6 unavailable"}));
}

TEST(Remote, RefusesAnotherModel) {
  const auto answer = [](auto change) {
    Remote r;
    r.on(StartReplica{{}, kRef});
    r.on(Connected{1});
    Welcome w = welcome();
    change(w);
    return r.hears(1, w);
  };
  const Texts refused{"disconnect 1", "ReplicaDown r2.5 unsupported"};
  EXPECT_EQ(answer([](Welcome& w) { w.model.name = "other"; }), refused);
  EXPECT_EQ(answer([](Welcome& w) { w.model.vocab_size = 99; }), refused);
  EXPECT_EQ(answer([](Welcome& w) { w.model.context_length = 63; }), refused);
  EXPECT_EQ(answer([](Welcome& w) { w.tokens = 8; }), refused);
  EXPECT_EQ(answer([](Welcome& w) { w.model.arithmetic_id = "cuda"; }), Texts{"ReplicaUp r2.5"}) << "that is the dispatcher's to know";
}

TEST(Remote, IsNeverGivenUp) {
  Restarts tries(for_remote(SupervisionConfig{}));
  for (TimeNs now = 0, n = 0; n < 1000; ++n) {
    const auto next = tries.next(now);
    ASSERT_TRUE(next);
    EXPECT_LE(*next - now, 5'000 * kMs);
    now = *next;
  }
}

// ---- the node's side

TEST(Host, GivesTheReplicaToOneRuntime) {
  Host h;
  EXPECT_EQ(h.hears(1, Host::hello(42, kRef)), Texts{"> Welcome"});
  EXPECT_EQ(h.hears(1, admit(1, 1, kRef)), Texts{"Admit 1#1 r0.1"});
  EXPECT_EQ(h.hears(1, admit(2, 1, {2, 4})), Texts{}) << "for an earlier life";
  EXPECT_EQ(h.hears(2, Host::hello(43, {0, 9})), (Texts{"> Refused overloaded", "disconnect 2"}));
  EXPECT_EQ(h.hears(2, admit(3, 1, {0, 9})), Texts{}) << "who was refused has nothing to say";
  EXPECT_EQ(h.on(Deliver{{}, Shared<TokenBatch>::of({})}), Texts{"> Deliver"});
  EXPECT_EQ(h.ends(1, 1), Texts{"> Ended 1#1 r0.1"});
  EXPECT_EQ(h.core.live(), 0u);
}

TEST(Host, TheNextRuntimeWaitsForTheRequestsOfTheLast) {
  Host h;
  h.hears(1, Host::hello(42, kRef));
  h.hears(1, admit(1, 1, kRef));
  h.hears(1, admit(2, 2, kRef));
  EXPECT_EQ(h.on(Disconnected{1, {}}), (Texts{"CancelRequest 1#1 r0.1", "CancelRequest 2#2 r0.1"}));
  EXPECT_EQ(h.hears(2, Host::hello(43, {0, 1})), Texts{}) << "not yet";
  EXPECT_EQ(h.on(Deliver{{}, Shared<TokenBatch>::of({})}), Texts{}) << "of requests of the first";
  EXPECT_EQ(h.ends(1, 1), Texts{});
  EXPECT_EQ(h.on(CancelReply{{}, {1, 1}, CancelOutcome::cancelled_running, 3, kLocal}), Texts{});
  EXPECT_EQ(h.ends(2, 2), Texts{}) << "its answer to the cancel is still to come";
  EXPECT_EQ(h.on(CancelReply{{}, {2, 2}, CancelOutcome::cancelled_running, 3, kLocal}), Texts{"> Welcome"});
  EXPECT_EQ(h.hears(2, admit(1, 1, {0, 1})), Texts{"Admit 1#1 r0.1"}) << "the same id as before is another request now";
}

TEST(Host, AnAnswerToAnEarlierRuntimeIsNotTheNextOnes) {
  Host h(2);
  h.hears(1, Host::hello(42, kRef));
  LoraSubmit load;
  load.id = 7;
  load.replica = kRef;
  EXPECT_EQ(h.hears(1, load), Texts{"LoraSubmit 7 r0.1"});
  EXPECT_EQ(h.hears(2, Host::hello(42, {2, 6})), (Texts{"disconnect 1"})) << "the same runtime, again";
  LoraAnswer answer;
  answer.id = 7;
  EXPECT_EQ(h.on(answer), Texts{"> Welcome"});
}

TEST(Host, WithoutRoomForAdaptersItAnswersByItself) {
  Host h;
  h.hears(1, Host::hello(42, kRef));
  LoraSubmit load;
  load.id = 7;
  load.replica = kRef;
  EXPECT_EQ(h.hears(1, load), Texts{"> LoraAnswer 7 r0.1"});
  EXPECT_EQ(h.hears(2, Host::hello(42, {2, 6})), (Texts{"disconnect 1", "> Welcome"})) << "it waits for no answer";
}

TEST(Host, ARuntimeThatComesAgainTakesOver) {
  Host h;
  h.hears(1, Host::hello(42, kRef));
  h.hears(1, admit(1, 1, kRef));
  EXPECT_EQ(h.hears(2, Host::hello(42, kRef)), (Texts{"> Refused closed", "disconnect 2"})) << "no higher incarnation";
  EXPECT_EQ(h.hears(2, Host::hello(42, {2, 6})), (Texts{"disconnect 1", "CancelRequest 1#1 r0.1"}));
  EXPECT_EQ(h.hears(1, admit(2, 1, kRef)), Texts{});
  EXPECT_EQ(h.on(Disconnected{1, {}}), Texts{}) << "the old connection's end";
  h.on(CancelReply{{}, {1, 1}, CancelOutcome::cancelled_running, 3, kLocal});
  EXPECT_EQ(h.ends(1, 1), Texts{"> Welcome"});
}

TEST(Host, ASilentRuntimeIsGone) {
  Host h;
  h.hears(1, Host::hello(42, kRef), 0);
  h.hears(1, admit(1, 1, kRef), 50 * kMs);
  EXPECT_EQ(h.on(Tick{}, 100 * kMs), Texts{"> Heartbeat"});
  EXPECT_EQ(h.on(Tick{}, 349 * kMs), Texts{"> Heartbeat"});
  EXPECT_EQ(h.on(Tick{}, 350 * kMs), (Texts{"disconnect 1", "CancelRequest 1#1 r0.1"}));
  EXPECT_FALSE(h.core.held());
}

TEST(Host, MoreRequestsThanAllowedEndTheLink) {
  Host h;
  h.hears(1, Host::hello(42, kRef));
  for (std::uint64_t i = 1; i <= 3; ++i) h.hears(1, admit(i, i, kRef));
  EXPECT_EQ(h.hears(1, admit(4, 4, kRef)),
            (Texts{"CancelRequest 1#1 r0.1", "CancelRequest 2#2 r0.1", "CancelRequest 3#3 r0.1", "> Refused overloaded", "disconnect 1"}));
  Host twice;
  twice.hears(1, Host::hello(42, kRef));
  twice.hears(1, admit(1, 1, kRef));
  EXPECT_EQ(twice.hears(1, admit(1, 1, kRef)), (Texts{"CancelRequest 1#1 r0.1", "> Refused bad_request", "disconnect 1"}));
}

TEST(Host, ADrainEndsWithTheLastRequest) {
  Host h;
  h.hears(1, Host::hello(42, kRef));
  h.hears(1, admit(1, 1, kRef));
  EXPECT_EQ(h.hears(1, Drain{{}, kRef}), Texts{});
  EXPECT_EQ(h.ends(1, 1), (Texts{"> Ended 1#1 r0.1", "> Drained r0.1"}));
}

TEST(Host, ALostReplicaIsMadeAnew) {
  Host h;
  h.hears(1, Host::hello(42, kRef));
  h.hears(1, admit(1, 1, kRef));
  EXPECT_EQ(h.on(ReplicaLost{{}, kLocal, {ErrorCode::device_lost, "gone"}}), (Texts{"> ReplicaLost r0.1 device_lost", "StopReplica r0.1"}));
  EXPECT_EQ(h.on(ReplicaLost{{}, kLocal, {ErrorCode::device_lost, "gone"}}), Texts{});
  EXPECT_EQ(h.on(Disconnected{1, {}}), Texts{});
  EXPECT_EQ(h.hears(2, Host::hello(42, {2, 6})), Texts{}) << "while it is made";
  EXPECT_EQ(h.on(ReplicaDown{{}, kLocal, {}}), Texts{"StartReplica r0.2"});
  EXPECT_EQ(h.on(ReplicaDown{{}, {0, 2}, {ErrorCode::device_lost, "still"}}), (Texts{"> Refused unavailable", "disconnect 2"}));
  EXPECT_EQ(h.hears(3, Host::hello(42, {2, 7})), Texts{"StartReplica r0.3"}) << "whoever asks for it next is why it is tried again";
  EXPECT_EQ(h.on(ReplicaUp{{}, {0, 3}, ""}), Texts{"> Welcome"});
  EXPECT_EQ(h.hears(3, admit(1, 1, {2, 7})), Texts{"Admit 1#1 r0.3"});
}

TEST(Host, WhatNoDispatcherWouldSendEndsTheLink) {
  const auto refused = [](auto change) {
    Host h;
    h.hears(1, Host::hello(42, kRef));
    Admit m = admit(1, 1, kRef);
    Request r = *m.request;
    change(m, r);
    m.request = Shared<Request>::of(r);
    return h.hears(1, m) == Texts{"> Refused bad_request", "disconnect 1"};
  };
  EXPECT_FALSE(refused([](Admit&, Request&) {}));
  EXPECT_TRUE(refused([](Admit&, Request& r) { r.prompt = {100}; })) << "outside of the vocabulary";
  EXPECT_TRUE(refused([](Admit&, Request& r) { r.prompt.resize(70); })) << "past the context";
  EXPECT_TRUE(refused([](Admit&, Request& r) { r.stop.max_tokens = 0; }));
  EXPECT_TRUE(refused([](Admit& m, Request&) { m.output = {100}; }));
  EXPECT_TRUE(refused([](Admit& m, Request&) { m.output.resize(64); }));
  EXPECT_TRUE(refused([](Admit& m, Request&) { m.adapter = {1, 1}; }));
}

}  // namespace
}  // namespace troupe::actors::link
