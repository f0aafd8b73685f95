#include <cstring>

#include "kernels/host/feed.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::kernels {
namespace {

constexpr std::uint32_t kVocab = 50, kTag = 900, kSlots = 6, kPerSlot = 5, kBlock = 4, kBlocks = 20;

struct Step {
  std::vector<std::uint32_t> table, ids;
  std::vector<Cell> first, second, cells;
  std::vector<StepRow> rows;
  std::vector<StepToken> tokens;
  std::vector<RowReadback> readback;
  std::vector<const Cell*> arrays;
  std::uint32_t window = 0;

  FeedArgs args() {
    arrays = {first.data(), second.data()};
    FeedArgs a;
    a.rows = rows.data(), a.n_rows = static_cast<std::uint32_t>(rows.size());
    a.ids = ids.data();
    a.cell_arrays = arrays.data();
    a.cells = cells.data();
    a.tag = kTag, a.vocab = kVocab, a.block_size = kBlock, a.n_blocks = kBlocks, a.window = window;
    a.tables = {table.data(), kSlots, kPerSlot};
    a.tokens = tokens.data();
    a.readback = readback.data();
    return a;
  }
};

Step random_step(std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  Step s;
  s.window = rng() % 2 == 0 ? 0 : 1 + rng() % 9;
  s.table.resize(kSlots * kPerSlot);
  for (std::uint32_t i = 0; i < s.table.size(); ++i) {  // most tables are full but for a last entry; a few are broken
    s.table[i] = i % kPerSlot == kPerSlot - 1 ? 0 : rng() % 40 == 0 ? kBlocks + 1 : rng() % 25 == 0 ? 0 : 1 + rng() % kBlocks;
  }
  for (auto* cells : {&s.first, &s.second}) {
    for (int i = 0; i < 8; ++i) {
      cells->push_back({static_cast<std::uint32_t>(rng() % (kVocab + 2)), rng() % 4 == 0 ? static_cast<Status>(rng() % 4) : Status::ok,
                        rng() % 5 == 0 ? 7u : 8u});
    }
  }
  const std::size_t n = 1 + rng() % 40;
  std::uint32_t tokens = 0;
  for (std::size_t i = 0; i < n; ++i) {
    StepRow r;
    r.slot = static_cast<std::uint32_t>(rng() % 20 == 0 ? kSlots : rng() % kSlots);
    r.position = static_cast<std::uint32_t>(rng() % 14);
    r.output = rng() % 3 == 0 ? kNone : static_cast<std::uint32_t>(i);
    if (rng() % 2 == 0) {
      r.fed = 1, r.feed_cells = rng() % 2, r.index = rng() % 8, r.feed_tag = 8;
    } else {
      r.n_tokens = static_cast<std::uint32_t>(rng() % 10 == 0 ? 200 : 1 + rng() % 4);  // more than threads: no block
      r.index = static_cast<std::uint32_t>(s.ids.size());
      for (std::uint32_t k = 0; k < r.n_tokens; ++k) s.ids.push_back(static_cast<std::uint32_t>(rng() % 60 == 0 ? kVocab : rng() % kVocab));
    }
    tokens += r.n_tokens;
    s.rows.push_back(r);
  }
  s.ids.push_back(0);
  s.tokens.resize(tokens);
  s.cells.resize(n);
  s.readback.resize(n);
  return s;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(static_cast<const void*>(a.data()), b.data(), a.size() * sizeof(T)) == 0;
}

TEST(CudaFeedResolve, IsTheHostsAnswer) {
  std::size_t by_status[4] = {};
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Step want = random_step(seed), got = want;
    feed_resolve(want.args());
    Machine m(seed);
    launch_feed_resolve(got.args(), m.stream());
    ASSERT_TRUE(same(got.tokens, want.tokens)) << seed;
    ASSERT_TRUE(same(got.cells, want.cells)) << seed;
    ASSERT_TRUE(same(got.readback, want.readback)) << seed;
    for (const Cell& c : want.cells) ++by_status[static_cast<std::size_t>(c.status)];
  }
  for (std::size_t n : by_status) EXPECT_GT(n, 100u);  // every outcome was met
}

TEST(CudaApplyChanges, InOrderAndInsideTheTablesOnly) {
  std::mt19937_64 rng(1);
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    std::vector<TableChange> changes(1 + rng() % 300);
    for (TableChange& c : changes) {
      c = {static_cast<std::uint32_t>(rng() % (kSlots + 1)), static_cast<std::uint32_t>(rng() % (kPerSlot + 1)),
           static_cast<std::uint32_t>(rng() % 1000)};
    }
    std::vector<std::uint32_t> want(kSlots * kPerSlot, 0), got = want;
    apply_changes({want.data(), kSlots, kPerSlot}, changes.data(), static_cast<std::uint32_t>(changes.size()));
    Machine m(seed);
    launch_apply_changes({got.data(), kSlots, kPerSlot}, changes.data(), static_cast<std::uint32_t>(changes.size()), m.stream());
    ASSERT_EQ(got, want);
    launch_apply_changes({got.data(), kSlots, kPerSlot}, changes.data(), 0, m.stream());
    ASSERT_EQ(got, want);
  }
}

}  // namespace
}  // namespace troupe::kernels
