// Blocks behind a sliding window: when they go back, what the device is told, and what else of the router meets them.
#include "tests/actors/router/rig.h"

namespace troupe::actors {
namespace {

ModelInfo windowed() {
  ModelInfo m = small_model();
  m.window = 6;  // position p reads p - 5 .. p: block 0 goes at settled length 9, block 1 at 13
  return m;
}

class WindowTest : public PrefixTest {
 protected:
  WindowTest() : PrefixTest(windowed()) {}
  // Of the newest step: the entries that it takes away.
  std::vector<std::uint32_t> taken() const {
    std::vector<std::uint32_t> out;
    for (const TableDelta& d : enqueued.back()->deltas)
      if (d.block == kNoBlock) out.push_back(d.index);
    return out;
  }
  const std::vector<Token> long_prompt{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
};

TEST_F(WindowTest, BlocksGoBackWhenNoPositionFromTheSettledLengthOnReadsThem) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0, 16)}), ErrorCode::none);
  complete(1);
  for (std::uint32_t settled = 1; settled <= 16; ++settled) {
    ASSERT_EQ(apply(Commit{a, 0, settled}), ErrorCode::none);
    EXPECT_EQ(core.facts().used_blocks, settled < 9 ? 4u : settled < 13 ? 3u : 2u) << settled;
  }
  EXPECT_EQ(core.stats().behind_window, 2u);
  EXPECT_EQ(core.stats().behind_window_fenced, 0u);
  ASSERT_EQ(launch(2, {host_row(a, 16)}), ErrorCode::none);
  EXPECT_EQ(taken(), (std::vector<std::uint32_t>{0, 1})) << "the device is told, once";
  ASSERT_EQ(launch(3, {fed_row(a, 17, 2, 0)}), ErrorCode::none);
  EXPECT_EQ(taken(), std::vector<std::uint32_t>{});
}

// The scenario optimistic-length in small: what is launched may be done again.
TEST_F(WindowTest, TheLaunchedLengthGivesNothingBack) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0, 8)}), ErrorCode::none);
  ASSERT_EQ(launch(2, {fed_row(a, 8, 1, 0)}), ErrorCode::none);
  complete(1);
  ASSERT_EQ(apply(Commit{a, 0, 8}), ErrorCode::none);
  EXPECT_EQ(core.stats().behind_window, 0u) << "nine positions are launched, and position 8 reads block 0";
  Row again = host_row(a, 8);
  again.epoch = 1;
  ASSERT_EQ(launch(3, {again}, {Rollback{a, 1}}), ErrorCode::none);
  EXPECT_EQ(taken(), std::vector<std::uint32_t>{});
  complete(2);
  complete(3);
  ASSERT_EQ(apply(Commit{a, 1, 9}), ErrorCode::none);
  EXPECT_EQ(core.stats().behind_window, 1u);
}

// R3: a step in flight names it in its table, though it does not read it.
TEST_F(WindowTest, ABlockWaitsForTheLastStepThatNamesIt) {
  const SeqId a = open(1), b = open(2);
  ASSERT_EQ(launch(1, {host_row(a, 0, 9), host_row(b, 0)}), ErrorCode::none);
  ASSERT_EQ(launch(2, {fed_row(a, 9, 1, 0)}), ErrorCode::none);
  complete(1);
  ASSERT_EQ(launch(3, {host_row(b, 1)}, {Commit{a, 0, 9}}), ErrorCode::none);
  EXPECT_EQ(core.facts().fenced_blocks, 1u);
  EXPECT_EQ(core.facts().free_blocks, 4u);
  complete(2);
  EXPECT_EQ(core.facts().fenced_blocks, 0u) << "step 3 does not name it";
  EXPECT_EQ(core.facts().free_blocks, 5u);
  EXPECT_EQ(core.stats().behind_window_fenced, 1u);
}

TEST_F(WindowTest, AFenceOutlivesTheSequence) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0, 9)}), ErrorCode::none);
  ASSERT_EQ(launch(2, {fed_row(a, 9, 1, 0)}), ErrorCode::none);
  complete(1);
  ASSERT_EQ(apply(Commit{a, 0, 9}), ErrorCode::none);
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  EXPECT_EQ(core.facts().fenced_blocks, 3u);
  complete(2);
  EXPECT_EQ(core.facts().free_blocks, 8u);
}

TEST_F(WindowTest, AReleaseAndATeardownGiveBackWhatIsLeft) {
  const SeqId a = open(1), b = open(2);
  ASSERT_EQ(launch(1, {host_row(a, 0, 9)}), ErrorCode::none);
  ASSERT_EQ(launch(2, {host_row(b, 0, 9)}), ErrorCode::none);
  complete(1);
  complete(2);
  ASSERT_EQ(apply(Commit{a, 0, 9}), ErrorCode::none);
  ASSERT_EQ(apply(Commit{b, 0, 9}), ErrorCode::none);
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  EXPECT_EQ(applied->outcome.blocks, 2u);
  EXPECT_EQ(core.facts().free_blocks, 6u);
  send(Teardown{});
  ASSERT_TRUE(torn_down);
  EXPECT_EQ(torn_down->facts.free_blocks, 8u);
}

TEST_F(WindowTest, AWholeTableNamesNothingForWhatWentBack) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0, 9)}), ErrorCode::none);
  complete(1);
  ASSERT_EQ(apply(Commit{a, 0, 9}), ErrorCode::none);
  ASSERT_EQ(apply(ReserveKv{a, 16}), ErrorCode::none);
  EXPECT_EQ(applied->outcome.blocks, 1u) << "covers 16 positions, of which the first four are gone";
  EXPECT_EQ(core.facts().used_blocks, 3u);
  ASSERT_EQ(apply(CompactSlot{a, 3}), ErrorCode::none);
  ASSERT_EQ(launch(2, {host_row(a, 9)}), ErrorCode::none);
  ASSERT_EQ(enqueued[1]->deltas.size(), 3u);
  EXPECT_EQ(enqueued[1]->deltas[0].block, kNoBlock);
  EXPECT_EQ(enqueued[1]->deltas[1].block, enqueued[0]->deltas[1].block);
  for (const TableDelta& d : enqueued[1]->deltas) EXPECT_EQ(d.slot, 3u);
}

// 32 positions in the four blocks that another sequence leaves, which are 16.
TEST_F(WindowTest, ASequenceRunsInTheBlocksOfItsWindow) {
  const SeqId a = open(1), b = open(2);
  ASSERT_EQ(launch(1, {host_row(b, 0, 16)}), ErrorCode::none);
  complete(1);
  std::uint32_t most = 0;
  for (std::uint32_t p = 0; p < 32; ++p) {
    ASSERT_EQ(launch(2 + p, {host_row(a, p)}, p == 0 ? std::vector<Effect>{} : std::vector<Effect>{Commit{a, 0, p}}), ErrorCode::none);
    complete(2 + p);
    most = std::max(most, core.facts().used_blocks - 4);
  }
  EXPECT_EQ(most, windowed().blocks_needed(32));
}

TEST_F(WindowTest, APublishedBlockStaysInThePrefixCache) {
  const SeqId a = open_with(1, long_prompt);
  ASSERT_EQ(launch(1, {host_row(a, 0, 13)}), ErrorCode::none);
  complete(1);
  ASSERT_EQ(apply(Commit{a, 0, 13}), ErrorCode::none);
  EXPECT_EQ(core.facts().cached_blocks, 2u);
  EXPECT_EQ(core.facts().used_blocks, 2u);
  const SeqId b = open_with(2, long_prompt);
  EXPECT_EQ(opened->cached_len, 12u);
  EXPECT_EQ(opened->facts.cached_blocks, 1u) << "position 12 reads blocks 1 to 3";
  ASSERT_EQ(launch(2, {host_row(b, 12)}), ErrorCode::none);
  ASSERT_EQ(enqueued[1]->deltas.size(), 4u);
  EXPECT_EQ(taken(), (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(enqueued[1]->deltas[1].block, enqueued[0]->deltas[1].block);
}

// The blocks after a reclaimed one leave the cache, whoever uses them, and are freed once.
TEST_F(WindowTest, ABlockBehindTheWindowIsReclaimedWhileThoseAfterItAreShared) {
  const SeqId a = open_with(1, long_prompt);
  ASSERT_EQ(launch(1, {host_row(a, 0, 13)}), ErrorCode::none);
  complete(1);
  ASSERT_EQ(apply(Commit{a, 0, 13}), ErrorCode::none);
  const SeqId b = open_with(2, long_prompt), c = open_with(3, {50, 51});
  ASSERT_EQ(launch(2, {host_row(c, 0, 16)}), ErrorCode::none);
  EXPECT_EQ(core.facts().free_blocks, 0u);
  complete(2);
  ASSERT_EQ(launch(3, {host_row(c, 16)}), ErrorCode::none);
  EXPECT_EQ(core.stats().reclaimed, 1u);
  EXPECT_EQ(core.facts().cached_blocks, 0u);
  complete(3);
  const SeqId d = open_with(4, long_prompt);
  EXPECT_EQ(opened->cached_len, 0u) << "without the first block the others cannot be found";
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  EXPECT_EQ(core.facts().used_blocks, 7u) << "a gives back its last one; block 2 is b's too";
  for (const SeqId s : {b, c, d}) ASSERT_EQ(apply(ReleaseSeq{s}), ErrorCode::none);
  EXPECT_EQ(core.facts().free_blocks, 8u);
}

}  // namespace
}  // namespace troupe::actors
