#include "kernels/host/feed.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "kernels/host/host_kernels.h"

namespace troupe::kernels {
namespace {

constexpr std::uint32_t kVocab = 10, kTag = 500;

struct Fixture {
  Fixture() {
    for (std::uint32_t slot = 0; slot < 3; ++slot) {
      for (std::uint32_t i = 0; i < 2; ++i) table[slot * 4 + i] = slot * 2 + i + 1;  // 2 of 4 blocks each
    }
  }
  void resolve(std::uint32_t window = 0) {
    FeedArgs a;
    a.window = window;
    a.rows = rows.data();
    a.n_rows = static_cast<std::uint32_t>(rows.size());
    a.ids = ids.data();
    a.cell_arrays = arrays.data();
    a.cells = cells.data();
    a.tag = kTag;
    a.vocab = kVocab;
    a.block_size = 4;
    a.n_blocks = 6;
    a.tables = tables();
    a.tokens = tokens.data();
    a.readback = readback.data();
    feed_resolve(a);
  }
  BlockTables tables() { return {table.data(), 3, 4}; }
  static StepRow host(std::uint32_t slot, std::uint32_t position, std::uint32_t index, std::uint32_t n, std::uint32_t output) {
    StepRow r;
    r.slot = slot, r.position = position, r.index = index, r.n_tokens = n, r.output = output;
    return r;
  }
  static StepRow fed(std::uint32_t slot, std::uint32_t array, std::uint32_t row, std::uint32_t tag, std::uint32_t output) {
    StepRow r;
    r.slot = slot, r.position = 2, r.fed = 1, r.feed_cells = array, r.index = row, r.feed_tag = tag, r.output = output;
    return r;
  }
  std::vector<std::uint32_t> table = std::vector<std::uint32_t>(12, 0);
  std::vector<std::uint32_t> ids{3, 4, 5, 6, 99};
  std::array<Cell, 4> first{Cell{7, Status::ok, 400}, Cell{0, Status::no_token, 400}, Cell{0, Status::stale_feed, 400},
                            Cell{10, Status::ok, 400}};
  std::array<Cell, 4> second{Cell{8, Status::ok, 401}, Cell{0, Status::poisoned, 401}, Cell{}, Cell{}};
  std::vector<const Cell*> arrays{first.data(), second.data()};
  std::vector<StepRow> rows;
  std::array<Cell, 8> cells{};
  std::array<StepToken, 16> tokens{};
  std::array<RowReadback, 8> readback{};
};

void expect(const Fixture& f, std::size_t row, Status status, std::uint32_t input) {
  EXPECT_EQ(f.cells[row].status, status) << row;
  EXPECT_EQ(f.cells[row].tag, kTag) << row;
  EXPECT_EQ(f.cells[row].id, 0u) << row;
  EXPECT_EQ(f.readback[row].status, status) << row;
  EXPECT_EQ(f.readback[row].input, input) << row;
  EXPECT_EQ(f.readback[row].tag, kTag) << row;
}

TEST(FeedResolve, HostIdsBecomeTokensInRowOrder) {
  Fixture f;
  f.rows = {Fixture::host(0, 5, 1, 3, 0), Fixture::host(2, 0, 0, 1, 1)};
  f.resolve();
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(f.tokens[i].id, 4 + i);
    EXPECT_EQ(f.tokens[i].slot, 0u);
    EXPECT_EQ(f.tokens[i].position, 5 + i);
  }
  EXPECT_EQ(f.tokens[3].id, 3u);
  EXPECT_EQ(f.tokens[3].slot, 2u);
  expect(f, 0, Status::ok, 6);  // a chunk's input is its last id
  expect(f, 1, Status::ok, 3);
}

TEST(FeedResolve, FedRowsReadTheNamedCell) {
  Fixture f;
  f.rows = {Fixture::fed(0, 0, 0, 400, 0), Fixture::fed(1, 1, 0, 401, 1)};
  f.resolve();
  EXPECT_EQ(f.tokens[0].id, 7u);
  EXPECT_EQ(f.tokens[1].id, 8u);
  expect(f, 0, Status::ok, 7);
  expect(f, 1, Status::ok, 8);
}

TEST(FeedResolve, TagIsComparedAlwaysAndErrorsTravel) {
  Fixture f;
  f.rows = {
      Fixture::fed(0, 0, 0, 401, 0),      // another step's tag
      Fixture::fed(0, 0, 1, 400, 1),      // no_token
      Fixture::fed(0, 0, 2, 400, 2),      // stale_feed
      Fixture::fed(0, 1, 1, 401, 3),      // poisoned
      Fixture::fed(0, 0, 3, 400, 4),      // an id outside the vocabulary
      Fixture::fed(0, 0, 1, 999, 5),      // stale before poisoned
      Fixture::fed(0, 0, 0, 401, kNone),  // an error also without an output
      Fixture::fed(0, 0, 0, 400, 6),      // its neighbours are well
  };
  f.resolve();
  expect(f, 0, Status::stale_feed, 0);
  expect(f, 1, Status::poisoned, 0);
  expect(f, 2, Status::poisoned, 0);
  expect(f, 3, Status::poisoned, 0);
  expect(f, 4, Status::poisoned, 0);
  expect(f, 5, Status::stale_feed, 0);
  expect(f, 6, Status::stale_feed, 0);
  expect(f, 7, Status::ok, 7);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(f.tokens[i].id, 0u);
}

TEST(FeedResolve, ARowWithoutOutputCannotBeFedFrom) {
  Fixture f;
  f.rows = {Fixture::host(0, 0, 0, 2, kNone)};
  f.resolve();
  EXPECT_EQ(f.cells[0].status, Status::no_token);
  EXPECT_EQ(f.cells[0].tag, kTag);
  EXPECT_EQ(f.readback[0].status, Status::ok);
  EXPECT_EQ(f.readback[0].input, 4u);
}

TEST(FeedResolve, PositionsWithoutABlockPoisonTheRowAlone) {
  Fixture f;
  f.rows = {Fixture::host(0, 7, 0, 2, 0), Fixture::host(1, 7, 0, 1, 1), Fixture::host(0, 15, 0, 2, 2), Fixture::host(9, 0, 0, 1, 3),
            Fixture::host(1, 3, 4, 1, 4)};
  f.table[2 * 4] = 7;  // outside the cache
  f.rows.push_back(Fixture::host(2, 0, 0, 1, 5));
  f.resolve();
  EXPECT_EQ(f.cells[0].status, Status::poisoned);
  EXPECT_EQ(f.tokens[0].slot, kNone);
  EXPECT_EQ(f.tokens[1].slot, kNone);
  EXPECT_EQ(f.cells[1].status, Status::ok);
  EXPECT_EQ(f.tokens[2].slot, 1u);
  EXPECT_EQ(f.cells[2].status, Status::poisoned);
  EXPECT_EQ(f.cells[3].status, Status::poisoned);
  EXPECT_EQ(f.cells[4].status, Status::poisoned);  // host id 99
  EXPECT_EQ(f.cells[5].status, Status::poisoned);
}

TEST(ApplyChanges, InOrderAndInsideTheTablesOnly) {
  Fixture f;
  const auto before = f.table;
  const TableChange changes[] = {{1, 3, 4}, {1, 3, 5}, {3, 0, 1}, {0, 4, 1}};
  apply_changes(f.tables(), changes, 4);
  auto want = before;
  want[1 * 4 + 3] = 6;
  EXPECT_EQ(f.table, want);
}

TEST(ArgmaxIntoCells, WritesCellsReadbackAndAskedLogits) {
  const auto k = make_host_kernels({.threads = 2});
  const float nan = __builtin_nanf("");
  std::vector<StepRow> rows(5);
  for (std::uint32_t r = 0; r < 5; ++r) rows[r].output = r < 4 ? r : kNone;
  rows[1].mask_a = 2;
  rows[2].logits_row = 1;
  const std::vector<float> logits{1, 5, 5, 2, /**/ 1, 2, 9, 3, /**/ nan, nan, nan, nan, /**/ 9, 1, 1, 1};
  std::vector<Cell> cells(5, Cell{0, Status::ok, kTag});
  cells[3].status = Status::poisoned;
  cells[4].status = Status::no_token;
  std::vector<RowReadback> readback(5);
  for (std::size_t r = 0; r < 5; ++r) readback[r] = {static_cast<std::uint32_t>(40 + r), 0, r == 3 ? Status::poisoned : Status::ok, kTag};
  std::vector<float> out(8, -1.0f);
  k->argmax(rows.data(), 5, logits.data(), 4, kTag, cells.data(), readback.data(), out.data());
  const std::uint32_t ids[] = {1, 3, 0, 0, 0};
  const Status cell_status[] = {Status::ok, Status::ok, Status::no_token, Status::poisoned, Status::no_token};
  const Status read_status[] = {Status::ok, Status::ok, Status::no_token, Status::poisoned, Status::ok};
  for (std::size_t r = 0; r < 5; ++r) {
    EXPECT_EQ(cells[r].id, ids[r]) << r;
    EXPECT_EQ(cells[r].status, cell_status[r]) << r;
    EXPECT_EQ(cells[r].tag, kTag) << r;
    EXPECT_EQ(readback[r].id, ids[r]) << r;
    EXPECT_EQ(readback[r].status, read_status[r]) << r;
    EXPECT_EQ(readback[r].input, 40 + r) << r;
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], -1.0f);
  for (int i = 4; i < 8; ++i) EXPECT_TRUE(out[i] != out[i]);
}

// Slot 0's block 0 (positions 0 to 3) has been given back.
TEST(FeedResolve, BlocksBehindTheWindowNeedNotBeThere) {
  for (const auto& [window, status] : {std::pair{0u, Status::poisoned}, {4u, Status::poisoned}, {3u, Status::ok}, {1u, Status::ok}}) {
    Fixture f;
    f.table[0] = 0;
    f.rows = {Fixture::host(0, 6, 0, 1, 0)};
    f.resolve(window);
    EXPECT_EQ(f.cells[0].status, status) << window;
  }
}

}  // namespace
}  // namespace troupe::kernels
