// What the model refuses, and how a row that fails leaves the others alone.
#include "device/models/llama.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "tests/device/models/llama_rig.h"

namespace troupe::device {
namespace {

const std::string kPath = "tests/golden/tiny-llama/tiny-llama.Q4_1.gguf";

LlamaOptions small() {
  LlamaOptions o;
  o.exact = true;
  o.kv_blocks = 16;
  o.max_rows = 8;
  o.max_step_tokens = 64;
  o.n_slots = 8;
  o.context_limit = 100;
  return o;
}

TEST(Llama, InfoSaysWhatTheFileAndTheOptionsSay) {
  LlamaRig rig(kPath, small());
  const ModelInfo& i = rig.info();
  EXPECT_EQ(i.architecture, "llama");
  EXPECT_EQ(i.vocab_size, 512u);
  EXPECT_EQ(i.n_layers, 2u);
  EXPECT_EQ(i.context_length, 100u);
  EXPECT_EQ(i.kv_blocks, 16u);
  EXPECT_EQ(i.eos_ids, std::vector<Token>{2});
  EXPECT_TRUE(i.supports_device_token_feed);
  EXPECT_EQ(i.arithmetic_id, "host/exact/kv-f32/Q4_1");
  LlamaOptions fast = small();
  fast.exact = false;
  LlamaRig other(kPath, fast);
  EXPECT_EQ(other.info().arithmetic_id, "host/int8x32/kv-f16/Q4_1");
}

TEST(Llama, FailedRowsFailAloneAndTheirDescendantsWithThem) {
  LlamaRig rig(kPath, small());
  const auto want = rig.run({{.slot = 0, .position = 0, .ids = {5, 6, 7}}});
  const auto start = rig.run({{.slot = 1, .position = 0, .ids = {5, 6, 7}}, {.slot = 2, .position = 0, .ids = {8}}});
  EXPECT_EQ(start.rows[0].id, want.rows[0].id);
  const Token good = start.rows[0].id;
  // Row 0: fed well. Row 1: a stale tag. Row 2: from the host.
  const auto second = rig.run({{.slot = 1, .position = 3, .feed_ring = start.ring, .feed_row = 0, .feed_tag = start.tag},
                               {.slot = 2, .position = 1, .feed_ring = start.ring, .feed_row = 1, .feed_tag = start.tag + 1},
                               {.slot = 0, .position = 3, .ids = {good}}});
  EXPECT_EQ(second.rows[0].status, CellStatus::ok);
  EXPECT_EQ(second.rows[0].input, good);
  EXPECT_EQ(second.rows[1], (Readback{0, 0, CellStatus::stale_feed, second.tag}));
  EXPECT_EQ(second.rows[2].status, CellStatus::ok);
  EXPECT_TRUE(same_bits(second.logits[0], second.logits[2]));
  // The next generation: row 0 well, row 1 poisoned, row 2 fed from the poisoned one's source too.
  const auto third = rig.run({{.slot = 1, .position = 4, .feed_ring = second.ring, .feed_row = 0, .feed_tag = second.tag},
                              {.slot = 2, .position = 2, .feed_ring = second.ring, .feed_row = 1, .feed_tag = second.tag}});
  EXPECT_EQ(third.rows[0].status, CellStatus::ok);
  EXPECT_EQ(third.rows[0].input, second.rows[0].id);
  EXPECT_EQ(third.rows[1], (Readback{0, 0, CellStatus::poisoned, third.tag}));
  // Recovered from the host: the bits are those of a run that never failed.
  const auto again = rig.run({{.slot = 2, .position = 1, .ids = {9}}, {.slot = 3, .position = 0, .ids = {8, 9}}});
  EXPECT_TRUE(same_bits(again.logits[0], again.logits[1]));
}

TEST(Llama, ARowThatWantsNoTokenFeedsNobody) {
  LlamaRig rig(kPath, small());
  const auto first = rig.run({{.slot = 0, .position = 0, .ids = {5, 6}, .wants = false}});
  EXPECT_EQ(first.rows[0].status, CellStatus::ok);
  EXPECT_EQ(first.rows[0].input, 6u);
  const auto second = rig.run({{.slot = 0, .position = 2, .feed_ring = first.ring, .feed_row = 0, .feed_tag = first.tag}});
  EXPECT_EQ(second.rows[0].status, CellStatus::poisoned);
}

TEST(Llama, MasksBarTheirIds) {
  LlamaRig rig(kPath, small());
  const auto plain = rig.run({{.slot = 0, .position = 0, .ids = {5, 6, 7}}});
  auto order = plain.logits[0];
  const Token best = plain.rows[0].id;
  order[best] = -1e30f;
  const auto second = static_cast<Token>(std::max_element(order.begin(), order.end()) - order.begin());
  order[second] = -1e30f;
  const auto third = static_cast<Token>(std::max_element(order.begin(), order.end()) - order.begin());
  const auto r = rig.run({{.slot = 1, .position = 0, .ids = {5, 6, 7}, .mask = {best, RowMask::kNone}},
                          {.slot = 2, .position = 0, .ids = {5, 6, 7}, .mask = {second, best}},
                          {.slot = 3, .position = 0, .ids = {5, 6, 7}, .mask = {second, third}}});
  EXPECT_EQ(r.rows[0].id, second);
  EXPECT_EQ(r.rows[1].id, third);
  EXPECT_EQ(r.rows[2].id, best);
}

TEST(Llama, PositionsWithoutBlocksPoisonTheRowAlone) {
  LlamaRig rig(kPath, small());
  const auto want = rig.run({{.slot = 0, .position = 0, .ids = {5, 6, 7}}});
  (void)rig.run({{.slot = 1, .position = 0, .ids = {5, 6}}});
  const auto r = rig.run({{.slot = 4, .position = 0, .ids = {5, 6, 7}}, {.slot = 1, .position = 2, .ids = {7}}}, false);
  EXPECT_EQ(r.rows[0].status, CellStatus::poisoned);
  EXPECT_EQ(r.rows[1].status, CellStatus::ok);
  EXPECT_TRUE(same_bits(r.logits[1], want.logits[0]));
}

TEST(Llama, ANanWeightMakesNoToken) {
  // The embedding of id 3 gets the scale NaN: rows that read it have no token, others do.
  auto bytes = std::make_shared<std::string>();
  {
    std::ifstream in("tests/golden/tiny-llama/tiny-llama.F32.gguf", std::ios::binary);
    bytes->assign(std::istreambuf_iterator<char>(in), {});
  }
  auto probe = GgufFile::parse(std::as_bytes(std::span(*bytes)), "probe");
  ASSERT_TRUE(probe);
  const auto at =
      static_cast<std::size_t>(probe.value().tensor("token_embd.weight")->data - reinterpret_cast<const std::byte*>(bytes->data()));
  const float nan = std::nanf("");
  std::memcpy(bytes->data() + at + 3 * 64 * 4, &nan, 4);
  const std::string path = testing::TempDir() + "/nan.gguf";
  std::ofstream(path, std::ios::binary) << *bytes;
  LlamaRig rig(path, small());
  // Tied embeddings: id 3's own logit is NaN in every row, and never wins.
  const auto r =
      rig.run({{.slot = 0, .position = 0, .ids = {5}}, {.slot = 1, .position = 0, .ids = {3}}, {.slot = 2, .position = 0, .ids = {6}}});
  EXPECT_EQ(r.rows[0].status, CellStatus::ok);
  EXPECT_NE(r.rows[0].id, 3u);
  EXPECT_TRUE(std::isnan(r.logits[0][3]));
  EXPECT_EQ(r.rows[1].status, CellStatus::no_token);
  EXPECT_EQ(r.rows[1].id, 0u);
  EXPECT_EQ(r.rows[2].status, CellStatus::ok);
  const auto next = rig.run({{.slot = 1, .position = 1, .feed_ring = r.ring, .feed_row = 1, .feed_tag = r.tag}});
  EXPECT_EQ(next.rows[0].status, CellStatus::poisoned);
}

TEST(Llama, RefusesWhatIsOutOfRangeBeforeItIsEnqueued) {
  LlamaRig rig(kPath, small());
  const auto code = [&](std::vector<RigRow> rows) {
    auto r = rig.launch(rows, false);
    return r ? ErrorCode::none : r.error().code;
  };
  EXPECT_EQ(code({{.slot = 8, .position = 0, .ids = {1}}}), ErrorCode::bad_plan);
  EXPECT_EQ(code({{.slot = 0, .position = 100, .ids = {1}}}), ErrorCode::bad_plan);
  EXPECT_EQ(code({{.slot = 0, .position = 99, .ids = {1, 2}}}), ErrorCode::bad_plan);
  EXPECT_EQ(code({{.slot = 0, .position = 0xFFFFFFFF, .ids = {1}}}), ErrorCode::bad_plan);
  EXPECT_EQ(code({{.slot = 0, .position = 0, .ids = {512}}}), ErrorCode::bad_plan);
  EXPECT_EQ(code({{.slot = 0, .position = 0, .ids = std::vector<Token>(65, 1)}}), ErrorCode::bad_plan);
  EXPECT_EQ(code({{.slot = 0, .position = 0, .feed_ring = 3}}), ErrorCode::bad_plan);
  EXPECT_EQ(code({{.slot = 0, .position = 0, .feed_row = 8}}), ErrorCode::bad_plan);
  EXPECT_EQ(code(std::vector<RigRow>(9, {.slot = 0, .position = 0, .ids = {1}})), ErrorCode::bad_plan);
  EXPECT_EQ(rig.run({{.slot = 0, .position = 0, .ids = {1}}}).rows[0].status, CellStatus::ok);
}

TEST(Llama, ArgmaxNeedsItsOwnStep) {
  LlamaRig rig(kPath, small());
  StepView v;
  v.ticket = {1, 1000};
  EXPECT_EQ(rig.model().argmax_batch_to_feed(0, v, {}, 0, 0).error().code, ErrorCode::bad_plan);
}

TEST(Llama, OptionsOutOfRangeAreRefused) {
  auto driver = make_host_driver({});
  const auto [source, config] = open_model(kPath);
  for (auto member :
       {&LlamaOptions::kv_blocks, &LlamaOptions::block_size, &LlamaOptions::max_rows, &LlamaOptions::n_slots, &LlamaOptions::max_depth}) {
    LlamaOptions o = small();
    o.*member = 0;
    auto r = LlamaModel::create(source, config, o, *driver);
    ASSERT_FALSE(r);
    EXPECT_EQ(r.error().code, ErrorCode::bad_request);
  }
  EXPECT_EQ(driver->usage().device_bytes, 0u);
}

TEST(Llama, MemoryThatTheDriverDoesNotGiveIsAnErrorAndNothingLeaks) {
  const auto [source, config] = open_model(kPath);
  for (std::uint64_t nth = 1; nth <= 5; ++nth) {
    auto driver = make_host_driver({});
    driver->inject({DriverCall::alloc_device, nth, ErrorCode::device_failed, false});
    auto r = LlamaModel::create(source, config, small(), *driver);
    ASSERT_FALSE(r) << nth;
    EXPECT_EQ(r.error().code, ErrorCode::device_failed);
    EXPECT_EQ(driver->usage().device_bytes, 0u);
  }
}

}  // namespace
}  // namespace troupe::device
