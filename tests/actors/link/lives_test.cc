// Both cores of a link, with a replica that ends requests when it likes, connections that break, and messages under way that are lost
// with them. Nothing of one life of the replica reaches the dispatcher in another; each life that came up and was not stopped is
// lost once; and when all is quiet again, the replica can be had.
#include <deque>
#include <map>
#include <random>
#include <set>

#include "tests/actors/link/core_rig.h"

namespace troupe::actors::link {
namespace {

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
