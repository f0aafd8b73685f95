#include "device/models/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace troupe::device {
namespace {

using Ids = std::vector<Token>;

// Ids: a 0, b 1, c 2; then one per merge.
Bpe::ByteIds abc() {
  Bpe::ByteIds bytes;
  bytes['a'] = 0, bytes['b'] = 1, bytes['c'] = 2;
  return bytes;
}

Ids encode(const Bpe& bpe, std::string_view word) {
  Bpe::Scratch scratch;
  Ids out;
  EXPECT_EQ(bpe.encode(word, scratch, out), std::nullopt);
  return out;
}

// As the algorithm is told: again and again, the pair of the lowest rank, the leftmost first.
Ids by_the_book(const std::vector<Bpe::Merge>& merges, std::string_view word) {
  Ids ids;
  for (char c : word) ids.push_back(static_cast<Token>(c - 'a'));
  for (;;) {
    std::size_t best_rank = merges.size(), best_at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      for (std::size_t r = 0; r < best_rank; ++r) {
        if (merges[r].left == ids[i] && merges[r].right == ids[i + 1]) best_rank = r, best_at = i;
      }
    }
    if (best_rank == merges.size()) return ids;
    ids[best_at] = merges[best_rank].merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(Bpe, RankGoesBeforePlaceAndLeftBeforeRight) {
  const Bpe bpe(abc(), {{1, 2, 3}, {0, 1, 4}, {0, 0, 5}, {0, 3, 6}});  // bc, ab, aa, a+bc
  EXPECT_EQ(encode(bpe, ""), Ids{});
  EXPECT_EQ(encode(bpe, "a"), Ids{0});
  EXPECT_EQ(encode(bpe, "ab"), Ids{4});
  EXPECT_EQ(encode(bpe, "abc"), Ids{6});
  EXPECT_EQ(encode(bpe, "aaa"), (Ids{5, 0}));
  EXPECT_EQ(encode(bpe, "aab"), (Ids{0, 4}));
}

// When abc has been made, the b behind it must not be taken for the one that a was first considered with.
TEST(Bpe, ACandidateOfOldNeighboursIsStale) {
  const Bpe bpe(abc(), {{1, 2, 3}, {0, 3, 4}, {0, 1, 5}});  // bc, a+bc, ab
  EXPECT_EQ(encode(bpe, "abcb"), (Ids{4, 1}));
}

TEST(Bpe, TheFirstOfTwoMergesOfOnePairCounts) {
  const Bpe bpe(abc(), {{0, 1, 3}, {0, 1, 4}});
  EXPECT_EQ(encode(bpe, "ab"), Ids{3});
}

TEST(Bpe, AsByTheBookOnRandomMergesAndWords) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<Bpe::Merge> merges;
    for (Token i = 0; i < 12; ++i)
      merges.push_back({static_cast<Token>(random() % (3 + i)), static_cast<Token>(random() % (3 + i)), 3 + i});
    const Bpe bpe(abc(), merges);
    for (int w = 0; w < 10; ++w) {
      std::string word;
      for (std::size_t n = random() % 30; n > 0; --n) word.push_back(static_cast<char>('a' + random() % 3));
      ASSERT_EQ(encode(bpe, word), by_the_book(merges, word)) << "round " << round << " word " << word;
    }
  }
}

TEST(Bpe, AByteWithoutATokenIsNamed) {
  const Bpe bpe(abc(), {{0, 1, 3}});
  Bpe::Scratch scratch;
  Ids out{9};
  EXPECT_EQ(bpe.encode("abxb", scratch, out), 2u);
  EXPECT_EQ(out, Ids{9});
}

// Quadratic work would take hours here.
TEST(Bpe, AMillionOfOneLetter) {
  std::vector<Bpe::Merge> merges{{0, 0, 3}};
  for (Token id = 3; id < 10; ++id) merges.push_back({id, id, id + 1});
  const Bpe bpe(abc(), merges);
  const Ids ids = encode(bpe, std::string(1 << 20, 'a'));
  EXPECT_EQ(ids.size(), (1u << 20) / 256);
  EXPECT_TRUE(std::all_of(ids.begin(), ids.end(), [](Token id) { return id == 10; }));
}

}  // namespace
}  // namespace troupe::device
