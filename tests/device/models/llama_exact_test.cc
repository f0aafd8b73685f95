// R1: the bits of a row's logits at position p depend on tokens 0..p and the arithmetic alone. On every dispatch target
// of this CPU, and the same bits on all: the reference is the portable one's.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/device/models/llama_rig.h"

namespace troupe::device {
namespace {

constexpr std::uint32_t kTokens = 70;

std::vector<Token> tokens_of(std::uint64_t seed, std::size_t n = kTokens) {
  std::mt19937_64 rng(seed);
  std::vector<Token> ids(n);
  for (Token& id : ids) id = static_cast<Token>(rng() % 512);
  return ids;
}

using Logits = std::vector<std::vector<float>>;  // by position

using kernels::Target;

class Exact : public testing::TestWithParam<std::tuple<const char*, bool, Target>> {
 protected:
  void SetUp() override {
    const Target target = std::get<2>(GetParam());
    if (!kernels::supported(target)) GTEST_SKIP() << "this CPU has no " << kernels::name(target);
  }
  LlamaOptions options(unsigned threads = 1) const {
    LlamaOptions o;
    o.target = std::get<2>(GetParam());
    o.exact = std::get<1>(GetParam());
    o.threads = threads;
    o.max_rows = 64;
    o.n_slots = 64;
    o.kv_blocks = 600;
    o.max_depth = 2;
    return o;
  }
  std::string path() const { return std::string("tests/golden/") + std::get<0>(GetParam()); }

  // The reference: alone, one token at a time, portable; once for all targets and tests.
  const Logits& alone(const std::vector<Token>& ids) const {
    static std::map<std::tuple<std::string, bool, std::vector<Token>>, Logits> known;
    Logits& out = known[{path(), std::get<1>(GetParam()), ids}];
    if (!out.empty()) return out;
    LlamaOptions o = options();
    o.target = Target::portable;
    LlamaRig rig(path(), o);
    for (std::uint32_t p = 0; p < ids.size(); ++p) out.push_back(rig.run({{.slot = 0, .position = p, .ids = {ids[p]}}}).logits[0]);
    return out;
  }
};

TEST_P(Exact, ChunkingDoesNotMatter) {
  const auto ids = tokens_of(1);
  const Logits want = alone(ids);
  EXPECT_FALSE(same_bits(want[10], want[11]));
  for (unsigned threads : {1u, 2u}) {
    LlamaRig rig(path(), options(threads), 5 + threads);
    std::mt19937 rng(threads);
    for (std::uint32_t round = 0; round < 12; ++round) {
      const std::uint32_t most = round == 0 ? kTokens : 1 + round * 3;
      for (std::uint32_t p = 0; p < kTokens;) {
        const std::uint32_t n = round == 0 ? kTokens : std::min(kTokens - p, 1 + static_cast<std::uint32_t>(rng()) % most);
        const auto r = rig.run({{.slot = round, .position = p, .ids = {ids.begin() + p, ids.begin() + p + n}}});
        p += n;
        EXPECT_TRUE(same_bits(r.logits[0], want[p - 1])) << "threads " << threads << " round " << round << " position " << p - 1;
      }
      rig.release(round);
    }
  }
}

// What a sequence had computed goes on in other blocks, in the middle of one too.
TEST_P(Exact, CopiedBlocksDoNotMatter) {
  const auto ids = tokens_of(3);
  const Logits want = alone(ids);
  for (const std::uint32_t n : {1u, 16u, 21u, 48u}) {
    LlamaRig rig(path(), options(), 5 + n);
    (void)rig.run({{.slot = 0, .position = 0, .ids = {ids.begin(), ids.begin() + n}}});
    const auto copied = rig.copy_slot(0, 1);
    ASSERT_TRUE(copied) << copied.error().what;
    // The old blocks are another's now.
    (void)rig.run({{.slot = 0, .position = 0, .ids = tokens_of(9, n)}});
    for (std::uint32_t p = n; p < n + 8; ++p)
      EXPECT_TRUE(same_bits(rig.run({{.slot = 1, .position = p, .ids = {ids[p]}}}).logits[0], want[p])) << "position " << p;
  }
}

// R2: steps that were disowned, one after the other, leave nothing behind. What they wrote of the KV is written over; the
// recurrent state is read from the version that was settled.
TEST_P(Exact, RowsThatAreDoneAgainGiveTheirBits) {
  const auto ids = tokens_of(4), wrong = tokens_of(5);
  const Logits want = alone(ids);
  LlamaRig rig(path(), options(), 6);
  (void)rig.run({{.slot = 0, .position = 0, .ids = {ids.begin(), ids.begin() + 20}}});
  std::uint32_t settled = 1;  // version
  for (std::uint32_t p = 20; p < 50; ++p, ++settled) {
    if (p % 3 == 0) {
      (void)rig.run({{.slot = 0, .position = p, .ids = {wrong[p]}, .state_in = settled}});
      (void)rig.run({{.slot = 0, .position = p + 1, .ids = {wrong[p + 1]}}});
    }
    const auto r = rig.run({{.slot = 0, .position = p, .ids = {ids[p]}, .state_in = settled}});
    ASSERT_TRUE(same_bits(r.logits[0], want[p])) << "position " << p;
  }
}

TEST_P(Exact, BatchAndRowIndexDoNotMatter) {
  const auto ids = tokens_of(2);
  const Logits want = alone(ids);
  for (unsigned threads : {1u, 2u}) {
    LlamaRig rig(path(), options(threads), 11);
    // Company of every kind: others decode, others prefill; ours decodes or prefills at any row.
    // Fewer of them on the slower targets.
    const bool fast = std::get<2>(GetParam()) == kernels::best_target();
    for (std::uint32_t batch : fast ? std::vector<std::uint32_t>{2, 3, 4, 5, 8, 13, 32, 64} : std::vector<std::uint32_t>{2, 5, 13}) {
      for (const std::uint32_t index : {0u, batch / 2, batch - 1}) {
        std::uint32_t p = 0;
        for (std::uint32_t step = 0; p < 30; ++step) {
          const std::uint32_t n = step % 3 == 2 ? 5 : 1;
          std::vector<RigRow> rows;
          std::uint32_t budget = 500;
          for (std::uint32_t b = 0; b < batch; ++b) {
            if (b == index) {
              rows.push_back({.slot = 0, .position = p, .ids = {ids.begin() + p, ids.begin() + p + n}});
              continue;
            }
            const std::uint32_t slot = b < index ? b + 1 : b;
            const std::uint32_t m = b % 4 == 1 && budget > 80 ? 7 : 1;
            budget -= m;
            rows.push_back({.slot = slot, .position = step * 7, .ids = tokens_of(slot * 100 + step, m), .wants = b % 3 != 0});
            if (m == 1 && step > 0) rows.back().position = (step - 1) * 7 + 1;  // over what an earlier step wrote, or the next
          }
          const auto r = rig.run(rows);
          p += n;
          ASSERT_TRUE(same_bits(r.logits[index], want[p - 1]))
              << "threads " << threads << " batch " << batch << " row " << index << " position " << p - 1;
        }
        for (std::uint32_t slot = 0; slot < batch; ++slot) rig.release(slot);
      }
    }
  }
}

TEST_P(Exact, FedIdsGiveTheBitsOfHostIds) {
  const auto prompt = tokens_of(3, 20);
  constexpr std::uint32_t kSteps = 30;
  LlamaRig rig(path(), options(2), 3);
  // On the device: the last chunk feeds the first decode row, each decode row the next. A step is launched before the
  // one that feeds it is waited for, and our row's index changes from step to step.
  std::vector<Token> ids = prompt;
  Logits fed;
  std::uint32_t source_row = 1;
  auto source = rig.launch({{.slot = 5, .position = 0, .ids = {7}}, {.slot = 4, .position = 0, .ids = prompt}});
  ASSERT_TRUE(source);
  for (std::uint32_t i = 0; i < kSteps; ++i) {
    std::vector<RigRow> rows{{.slot = 5, .position = 1 + i, .ids = {9}}};
    const std::uint32_t row = i % 2;
    rows.insert(rows.begin() + row,
                {.slot = 4, .position = 20 + i, .feed_ring = source.value(), .feed_row = source_row, .feed_tag = rig.tag(source.value())});
    auto next = rig.launch(rows);
    ASSERT_TRUE(next);
    const RigResult r = rig.wait(source.value());
    ASSERT_EQ(r.rows[source_row].status, CellStatus::ok);
    EXPECT_EQ(r.rows[source_row].input, ids.back());
    EXPECT_EQ(r.rows[source_row].id,
              std::max_element(r.logits[source_row].begin(), r.logits[source_row].end()) - r.logits[source_row].begin());
    fed.push_back(r.logits[source_row]);
    ids.push_back(r.rows[source_row].id);
    source_row = row;
    source = next;
  }
  (void)rig.wait(source.value());
  const Logits want = alone(ids);
  for (std::uint32_t i = 0; i < kSteps; ++i) EXPECT_TRUE(same_bits(fed[i], want[19 + i])) << i;
}

// Every format, and a model of each family.
constexpr const char* kModels[] = {"tiny-llama/tiny-llama.F32.gguf",
                                   "tiny-llama/tiny-llama.F16.gguf",
                                   "tiny-llama/tiny-llama.BF16.gguf",
                                   "tiny-llama/tiny-llama.Q8_0.gguf",
                                   "tiny-llama/tiny-llama.Q4_0.gguf",
                                   "tiny-llama/tiny-llama.Q4_1.gguf",
                                   "tiny-llama-k/tiny-llama-k.Q4_K.gguf",
                                   "tiny-llama-k/tiny-llama-k.Q6_K.gguf",
                                   "tiny-llama3/tiny-llama3.Q8_0.gguf",
                                   "tiny-mistral-swa",
                                   "tiny-qwen2/tiny-qwen2.Q8_0.gguf",
                                   "tiny-qwen3",
                                   "tiny-qwen35"};
INSTANTIATE_TEST_SUITE_P(Models, Exact,
                         testing::Combine(testing::ValuesIn(kModels), testing::Bool(),
                                          testing::Values(Target::portable, Target::avx2, Target::avx512)),
                         [](const auto& info) {
                           std::string s = std::get<0>(info.param);
                           s = s.substr(s.find('/') + 1);
                           std::replace_if(
                               s.begin(), s.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           s += std::get<1>(info.param) ? "_exact_" : "_fast_";
                           s += kernels::name(std::get<2>(info.param));
                           return s.substr(0, s.find("-vnni"));
                         });

}  // namespace
}  // namespace troupe::device
