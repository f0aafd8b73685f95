// What the scheduler says about recurrent states: which are kept for other requests, and from which a request begins.
#include "tests/actors/scheduler/rig.h"

namespace troupe::actors {
namespace {

class SchedulerRecurrent : public SchedulerTest {
 protected:
  SchedulerRecurrent() {
    ModelInfo m = model();
    m.has_ssm_layers = true;
    m.ssm_states = 40;
    facts.has_ssm = true;
    facts.ssm_sequences = 8;
    SchedulerConfig config;
    config.depth = 1;
    make(config, m);
  }
  // Answers the open of `q` with what the router found.
  void open(const Request& q, std::uint32_t cached, std::uint32_t cut_first, std::uint32_t cut_second, std::uint32_t snapshot) {
    send(Admit{{}, {q.client, q.client}, Shared<Request>::of(q), 5});
    ASSERT_EQ(opened.size(), 1u);
    Opened m = opened.front();
    opened.clear();
    m.cached_len = cached;
    m.cut_first = cut_first;
    m.cut_second = cut_second;
    m.snapshot = snapshot;
    send(m);
  }
  // Settles the newest step, and the effects of the one that follows it.
  std::vector<std::string> settle() {
    const auto step = plans.back()->ticket.step;
    accept();
    SchedulerTest::settle(step, 5);
    std::vector<std::string> labels;
    for (const Effect& e : plans.back()->effects) labels.push_back(label(e));
    return labels;
  }
};

using Labels = std::vector<std::string>;

TEST_F(SchedulerRecurrent, StatesAtCutsAndBehindBlocksOfTheOutputAreKept) {
  open(request(1, 11, 9), 0, 4, 8, DeviceRow::kNone);
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0]->rows[0].n_tokens, 4u) << "a chunk ends at each cut";
  EXPECT_EQ(settle(), (Labels{"Commit{s1.1, len=4}", "SsmSnapshotSave{s1.1}"}));
  EXPECT_EQ(plans[1]->rows[0].n_tokens, 4u);
  EXPECT_EQ(settle(), (Labels{"Commit{s1.1, len=8}", "SsmSnapshotSave{s1.1}"}));
  EXPECT_EQ(plans[2]->rows[0].n_tokens, 3u);
  EXPECT_EQ(settle(), (Labels{"Commit{s1.1, len=11}"}));
  EXPECT_EQ(settle(), (Labels{"Commit{s1.1, len=12}", "SsmCheckpoint{s1.1}"}));
  EXPECT_EQ(settle(), (Labels{"Commit{s1.1, len=13}"}));
}

TEST_F(SchedulerRecurrent, ARequestBehindASnapshotBeginsFromItBeforeItsFirstRow) {
  open(request(1, 11, 9), 8, 0, 0, 17);
  ASSERT_EQ(plans.size(), 1u);
  ASSERT_EQ(plans[0]->effects.size(), 1u);
  EXPECT_EQ(label(plans[0]->effects[0]), "SsmSnapshotRestore{s1.1, snapshot=17}");
  EXPECT_EQ(plans[0]->rows[0].position, 8u);
  EXPECT_EQ(settle(), (Labels{"Commit{s1.1, len=11}"}));
}

TEST_F(SchedulerRecurrent, OneThatEndedMeanwhileIsReleasedOnly) {
  const Request q = request(1, 11, 9);
  send(Admit{{}, {1, 1}, Shared<Request>::of(q), 5});
  Opened m = opened.front();
  m.cached_len = 8;
  m.snapshot = 17;
  send(CancelRequest{{}, {1, 1}});
  send(m);
  EXPECT_TRUE(plans.empty());
  ASSERT_EQ(applied.size(), 1u);
  EXPECT_EQ(label(applied[0]), "ReleaseSeq{s1.1}");
}

}  // namespace
}  // namespace troupe::actors
