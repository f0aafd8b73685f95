#include "actors/wire/post.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "actors/wire.h"

namespace troupe::actors {
namespace {

using Sink = caf::typed_actor<caf::reacts_to<Ended>, caf::reacts_to<Tick>>;

struct Received {
  std::vector<TraceCtx> ctx;
};

class SinkActor : public Sink::base {
 public:
  SinkActor(caf::actor_config& config, Received* to) : Sink::base(config), to_(to) {}
  behavior_type make_behavior() override {
    return {[this](const Ended& m) { to_->ctx.push_back(m.ctx); }, [this](const Tick& m) { to_->ctx.push_back(m.ctx); }};
  }

 private:
  Received* to_;
};

TEST(Post, NumbersCausesAndCounts) {
  auto counts = std::make_shared<Counts>();
  Received received;
  {
    ControlConfig config({});
    caf::actor_system system(config);
    Sink sink = system.spawn<SinkActor>(&received);
    Post a(Sender::router, counts);
    Post b(Sender::driver, counts, 1);
    a.caused_by(123);
    a.send(sink, Ended{}, nullptr);
    a.send(sink, Tick{}, nullptr);
    b.caused_by(9);
    b.send(sink, Ended{{5, 5}, {}}, nullptr);
    EXPECT_EQ(counts->total(), 3u);
    a.send(Sink{}, Ended{}, nullptr);  // to nobody: not sent
    EXPECT_EQ(counts->total(), 3u);
    caf::scoped_actor self{system};
    caf::anon_send_exit(sink, caf::exit_reason::user_shutdown);
    self->wait_for(sink);
    a.send(sink, Ended{}, nullptr);  // to a dead actor: dropped, and its element comes back
    EXPECT_EQ(counts->total(), 4u);
    // The control thread may still be busy with the elements' return: only their number is certain.
    EXPECT_LE(a.elements_made(), 3u);
  }
  ASSERT_EQ(received.ctx.size(), 3u);
  EXPECT_EQ(received.ctx[0].cause, 123u);
  EXPECT_EQ(received.ctx[1].cause, 123u);
  EXPECT_EQ(received.ctx[2].cause, 9u);
  EXPECT_LT(received.ctx[0].seq, received.ctx[1].seq);
  std::set<std::uint64_t> seqs;
  for (const TraceCtx& ctx : received.ctx) seqs.insert(ctx.seq);
  EXPECT_EQ(seqs.size(), 3u);
}

}  // namespace
}  // namespace troupe::actors
