// Each core of a link alone, and both of them with breaking connections between.
#include <deque>
#include <map>
#include <random>
#include <set>

#include "actors/dispatcher/supervision.h"
#include "tests/actors/link/core_rig.h"

namespace troupe::actors::link {
namespace {

constexpr ReplicaRef kRef{2, 5}, kLocal{0, 1};

ModelInfo model() {
  ModelInfo m;
  m.name = "tiny";
  m.arithmetic_id = "host/avx2/exact";
  m.vocab_size = 100;
  m.context_length = 64;
  m.kv_blocks = 8;
  m.n_slots = 4;
  return m;
}
RemoteConfig remote_config() {
  RemoteConfig c;
  c.name = "node-a/0";
  c.owner = 42;
  c.heartbeat = 100 * kMs;
  c.silence = 300 * kMs;
  c.patience = 1000 * kMs;
  c.model = model();
  c.tokens = 9;
  return c;
}
Welcome welcome() {
  Welcome w;
  w.model = model();
  w.tokens = 9;
  return w;
}

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

struct Host {
  explicit Host(std::uint32_t adapters = 0)
      : core([&] {
          HostConfig c;
          c.node = "node-a";
          c.max_live = 3;
          c.ref = kLocal;
          c.model = model();
          c.model.max_loras = adapters;
          c.tokens = 9;
          return c;
        }()) {}
  HostCore core;
  HostOutbox out;
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
  static Hello hello(std::uint64_t owner, ReplicaRef ref) {
    Hello h;
    h.owner = owner;
    h.ref = ref;
    h.heartbeat = 100 * kMs;
    h.silence = 300 * kMs;
    return h;
  }
  Texts ends(std::uint64_t client, std::uint64_t generation) {
    Ended m;
    m.requests = {{{client, generation}, 0}};
    m.replica = kLocal;
    return on(m);
  }
};

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

// ---- both, with a replica that ends requests when it likes, connections that break, and messages under way that are lost
// with them. Nothing of one life of the replica reaches the dispatcher in another; each life that came up and was not stopped is
// lost once; and when all is quiet again, the replica can be had.
struct Life {
  explicit Life(std::uint64_t seed) : random(seed) {}
  std::mt19937_64 random;
  RemoteCore remote{[] {
    RemoteConfig c = remote_config();
    c.model = {};
    return c;
  }()};
  Host host;
  RemoteOutbox out;
  TimeNs now = 0;
  std::uint32_t link = 0;  // the connection that is there; 0 = none
  std::deque<LinkMessage> to_node, from_node;
  bool blackhole = false;  // what is sent is lost and nobody is told
  std::map<RequestId, std::uint32_t> at_replica;
  std::deque<CancelReply> replies;
  std::uint32_t incarnation = 0;
  bool up = false, stopped = true;
  std::set<RequestId> admitted, cancelled;  // in this life
  std::uint64_t generation = 0;
  int lives = 0, losses = 0, ended = 0, delivered = 0, answers = 0;

  bool chance(unsigned n) { return random() % n == 0; }
  void take(RemoteOutbox& box) {
    box.drain([&]<class M>(M&& m) {
      using T = std::decay_t<M>;
      if constexpr (std::is_same_v<T, Connect>) {
        link = m.connection;
        blackhole = false;
        remote.on(Connected{m.connection}, now, later);
      } else if constexpr (std::is_same_v<T, Disconnect>) {
        if (m.connection == link) break_link(false);
      } else if constexpr (std::is_same_v<T, Transmit>) {
        if (m.connection == link && !blackhole) to_node.push_back(m.message);
      } else if constexpr (std::is_same_v<T, ReplicaUp>) {
        up = true;
        ++lives;
      } else if constexpr (std::is_same_v<T, ReplicaLost>) {
        EXPECT_TRUE(up);
        up = false;
        ++losses;
        remote.on(StopReplica{{}, {2, incarnation}}, now, later);
      } else if constexpr (std::is_same_v<T, ReplicaDown>) {
        EXPECT_FALSE(up);
        stopped = true;
      } else if constexpr (std::is_same_v<T, Ended>) {
        EXPECT_TRUE(up);
        for (const Placed& p : m.requests) {
          EXPECT_EQ(admitted.erase(p.id), 1u) << label(p.id) << " is of another life";
          ++ended;
        }
      } else if constexpr (std::is_same_v<T, CancelReply>) {
        EXPECT_EQ(cancelled.erase(m.id), 1u) << label(m.id) << " was cancelled in another life";
        ++answers;
      } else if constexpr (std::is_same_v<T, Deliver>) {
        EXPECT_TRUE(up);
        for (const TokenEvent& e : m.batch->events) EXPECT_EQ(admitted.count(e.request), 1u) << label(e.request) << " is of another life";
        ++delivered;
      }
    });
    if (!later.empty()) {
      RemoteOutbox next = std::move(later);
      later = {};
      take(next);
    }
  }
  RemoteOutbox later;

  void take_host() {
    host.out.drain([&]<class M>(M&& m) {
      using T = std::decay_t<M>;
      if constexpr (std::is_same_v<T, Transmit>) {
        if (m.connection == link && !blackhole) from_node.push_back(m.message);
      } else if constexpr (std::is_same_v<T, Admit>) {
        EXPECT_EQ(at_replica.count(m.id), 0u) << label(m.id) << " is still there";
        at_replica[m.id] = 0;
      } else if constexpr (std::is_same_v<T, CancelRequest>) {
        replies.push_back({{}, m.id, at_replica.count(m.id) ? CancelOutcome::cancelled_running : CancelOutcome::not_found, 0, kLocal});
        if (at_replica.count(m.id)) at_replica[m.id] = 1;  // ends soon
      }
    });
  }
  void break_link(bool remote_knows) {
    const std::uint32_t gone = std::exchange(link, 0);
    if (gone == 0) return;
    to_node.clear();
    from_node.clear();
    if (!blackhole || chance(2)) host.core.on(Disconnected{gone, {}}, now, host.out);  // else it has to notice by itself
    take_host();
    if (remote_knows) {
      remote.on(Disconnected{gone, {ErrorCode::io_failed, "broken"}}, now, out);
      take(out);
    }
  }
  void step() {
    switch (random() % 12) {
      case 0:
      case 1:
        if (up && admitted.size() < 3) {
          Admit m = admit(1 + random() % 4, ++generation, {2, incarnation});
          admitted.insert(m.id);
          remote.on(m, now, out);
        }
        if (up && !admitted.empty() && chance(3) && cancelled.insert(*admitted.begin()).second) {
          remote.on(CancelRequest{{}, *admitted.begin(), {2, incarnation}}, now, out);
        }
        break;
      case 2:
      case 3:
      case 4:
        if (!to_node.empty()) {
          LinkMessage m = std::move(to_node.front());
          to_node.pop_front();
          host.core.on(link, std::move(m), now, host.out);
        }
        break;
      case 5:
      case 6:
        if (!from_node.empty()) {
          LinkMessage m = std::move(from_node.front());
          from_node.pop_front();
          remote.on(link, std::move(m), now, out);
        }
        break;
      case 7:
        if (!at_replica.empty()) {
          const RequestId id = at_replica.begin()->first;
          TokenBatch batch;
          batch.events.push_back({});
          batch.events[0].request = id;
          host.core.on(Deliver{{}, Shared<TokenBatch>::of(batch)}, now, host.out);
          if (chance(3) || at_replica.begin()->second != 0) {
            at_replica.erase(id);
            Ended e;
            e.requests = {{id, 0}};
            host.core.on(e, now, host.out);
          }
        }
        break;
      case 8:
        if (!replies.empty()) {
          host.core.on(replies.front(), now, host.out);
          replies.pop_front();
        }
        break;
      case 9:
        if (chance(20)) break_link(true);
        if (chance(40)) blackhole = true;
        break;
      case 10:
        if (stopped) {
          stopped = false;
          admitted.clear();
          cancelled.clear();
          remote.on(StartReplica{{}, {2, ++incarnation}}, now, out);
        }
        break;
      default:
        now += 20 * kMs;
        remote.on(Tick{}, now, out);
        take(out);
        host.core.on(Tick{}, now, host.out);
    }
    take(out);
    take_host();
  }
};

TEST(Link, NothingCrossesFromOneLifeIntoAnother) {
  int lives = 0, ended = 0, delivered = 0, losses = 0, answers = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Life life(seed);
    for (int i = 0; i < 3000; ++i) life.step();
    lives += life.lives;
    losses += life.losses;
    ended += life.ended;
    delivered += life.delivered;
    answers += life.answers;
    if (HasFailure()) return;
  }
  EXPECT_GT(lives, 300);
  EXPECT_GT(losses, 200);
  EXPECT_GT(ended, 3000);
  EXPECT_GT(delivered, 3000);
  EXPECT_GT(answers, 1000);
}

}  // namespace
}  // namespace troupe::actors::link
