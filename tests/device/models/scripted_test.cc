#include "device/models/scripted.h"

#include <gtest/gtest.h>

#include <random>
#include <semaphore>

#include "tests/device/models/scripted_rig.h"

namespace troupe::device {
namespace {

std::vector<Token> ids(std::uint32_t n, std::uint32_t seed, std::uint32_t vocab = 200) {
  std::mt19937 random(seed);
  std::vector<Token> out(n);
  for (Token& id : out) id = random() % vocab;
  return out;
}

TEST(Scripted, TellsWhatItIs) {
  Rig rig({.vocab = 8, .context = 100, .kv_blocks = 9, .n_slots = 5, .texts = {"a", "bc", "", "d", "e", "f", "g", "</s>"}});
  const ModelInfo& info = rig.model->info();
  EXPECT_EQ(info.vocab_size, 8u);
  EXPECT_EQ(info.context_length, 100u);
  EXPECT_EQ(info.kv_blocks, 9u);
  EXPECT_EQ(info.n_slots, 5u);
  EXPECT_TRUE(info.supports_device_token_feed);
  EXPECT_EQ(info.eos_ids, std::vector<Token>{7});
  EXPECT_EQ(info.tokens->text(1), "bc");
  EXPECT_EQ(info.tokens->text(2), "");
  EXPECT_EQ(info.tokens->text(7), "") << "the end of sequence has no text";
  Rig other({});
  EXPECT_EQ(other.model->info().tokens->text(12), "t12 ");
  other.close();
  rig.close();
}

TEST(Scripted, AnswersTheOracleAloneAtDepthOne) {
  for (const bool attention : {true, false}) {
    Rig rig({.attention = attention});
    std::vector<Token> history = ids(21, 1);
    std::vector<Token> input = history;
    std::uint32_t position = 0;
    for (std::uint64_t n = 1; n <= 60; ++n) {
      RigStep step;
      step.ticket = {1, n};
      if (n == 1) step.deltas = {{3, 0, 40}, {3, 1, 7}};
      if (position > 0 && position % 16 == 0) step.deltas = {{3, position / 16, position / 16 + 50}};
      step.host(3, position, input);
      position += static_cast<std::uint32_t>(input.size());
      ASSERT_FALSE(rig.run(step).has_error());
      const Readback& back = rig.slots[0].rows[0];
      ASSERT_EQ(back.id, scripted_next(rig.model->options(), history)) << n;
      EXPECT_EQ(back.status, CellStatus::ok);
      EXPECT_EQ(back.tag, step.ticket.tag());
      EXPECT_EQ(back.input, history.back());
      history.push_back(back.id);
      input = {back.id};
    }
    rig.close();
    const DriverUsage usage = rig.driver->usage();
    EXPECT_EQ(usage.streams + usage.events + usage.pinned_bytes + usage.device_bytes, 0u);
  }
}

// Many sequences with prompts in chunks, all decode rows fed from the step before, two steps in flight.
TEST(Scripted, AnswersTheOracleFedAtDepthTwo) {
  constexpr std::uint32_t kSeqs = 24;
  Rig rig({.n_slots = kSeqs, .max_depth = 2});
  struct Seq {
    std::vector<Token> prompt, history;
    std::uint32_t position = 0;
    std::uint32_t last_row = 0;
    std::uint64_t last_step = 0;
  };
  std::vector<Seq> seqs(kSeqs);
  std::uint32_t next_block = 0;
  for (std::uint32_t s = 0; s < kSeqs; ++s) {
    seqs[s].prompt = ids(1 + s * 3, s);
    seqs[s].history = seqs[s].prompt;
  }
  std::mt19937 random(7);
  RigStep in_flight[3];
  std::vector<std::uint32_t> owner[3];  // the sequence of each row that wants a token
  std::uint32_t compared = 0;
  const auto settle = [&](std::uint64_t n) {
    const auto slot = static_cast<std::uint32_t>(n % 3);
    ASSERT_FALSE(rig.wait(slot).has_error());
    for (std::size_t i = 0; i < in_flight[slot].rows.size(); ++i) {
      if (!in_flight[slot].rows[i].wants_token) continue;
      Seq& seq = seqs[owner[slot][i]];
      const Readback& back = rig.slots[slot].rows[i];
      ASSERT_EQ(back.status, CellStatus::ok);
      ASSERT_EQ(back.input, seq.history.back());
      ASSERT_EQ(back.id, scripted_next(rig.model->options(), seq.history));
      seq.history.push_back(back.id);
      ++compared;
    }
  };
  for (std::uint64_t n = 1; n <= 70; ++n) {
    const auto slot = static_cast<std::uint32_t>(n % 3);
    if (n > 2) settle(n - 2);
    RigStep& step = in_flight[slot];
    step = {};
    step.ticket = {2, n};
    owner[slot].clear();
    for (std::uint32_t s = 0; s < kSeqs; ++s) {
      Seq& seq = seqs[s];
      if (random() % 4 == 0 && seq.last_step == 0) continue;  // a prompt may wait, a decode row goes every step
      const std::uint32_t before = seq.position;
      if (seq.position < seq.prompt.size()) {
        const auto rest = static_cast<std::uint32_t>(seq.prompt.size()) - seq.position;
        const std::uint32_t chunk = std::min<std::uint32_t>(rest, 1 + random() % 9);
        const auto from = seq.prompt.begin() + seq.position;
        DeviceRow& row = step.host(s, seq.position, {from, from + chunk});
        row.wants_token = chunk == rest;
        seq.position += chunk;
        if (chunk == rest) seq.last_step = n;
      } else {
        step.fed(s, seq.position, static_cast<std::uint32_t>(seq.last_step % 3), {2, seq.last_step}, seq.last_row);
        seq.position += 1;
        seq.last_step = n;
      }
      seq.last_row = static_cast<std::uint32_t>(step.rows.size()) - 1;
      owner[slot].push_back(s);
      for (std::uint32_t b = (before + 15) / 16; b * 16 < seq.position; ++b) step.deltas.push_back({s, b, next_block++});
    }
    ASSERT_LE(next_block, 256u);
    ASSERT_FALSE(rig.enqueue(step, slot).has_error());
    rig.model->fed_step_settled({2, n});
  }
  settle(69);
  settle(70);
  EXPECT_GT(compared, 1000u);
  EXPECT_EQ(rig.model->settled(), 70u);
  rig.close();
}

// Prompts by the one feed and decode rows by the other, beside each other, each sequence on one at a time.
TEST(Scripted, HasAFeedForPrefillOnAStreamOfItsOwn) {
  constexpr std::uint32_t kSeqs = 8, kTokens = 40;
  Rig rig({.n_slots = kSeqs, .max_depth = 2, .prefill_stream = true, .faults = {{ScriptedFault::Kind::hang_step, 1000}}});
  EXPECT_EQ(rig.model->info().streams, 3u);
  ModelDeviceFeed* const aside = rig.model->prefill_feed();
  ASSERT_NE(aside, nullptr);
  const Stream prefill = rig.driver->create_stream().value();
  const auto prompt_of = [](std::uint32_t s) { return ids(30, s); };
  const auto begin = [&](RigStep& step, std::uint64_t ticket, std::uint32_t s) {
    step = {};
    step.ticket = {1, ticket};
    for (std::uint32_t b = 0; b < 6; ++b) step.deltas.push_back({s, b, s * 6 + b});
    step.host(s, 0, prompt_of(s));
    const StepView v = rig.view(step, 2);
    const auto logits = aside->decode_batch_fed(v, prefill);
    ASSERT_FALSE(logits.has_error());
    ASSERT_FALSE(
        aside->argmax_batch_to_feed(logits.value(), v, {rig.slots[2].rows, rig.slots[2].logits}, rig.slots[2].event, prefill).has_error());
  };
  std::vector<std::vector<Token>> histories;
  std::uint64_t ticket = 1;
  RigStep prompt, decode;
  for (std::uint32_t s = 0; s <= kSeqs; ++s) {
    if (s < kSeqs) begin(prompt, ticket++, s);
    for (std::uint32_t n = 0; n < kTokens / kSeqs && !histories.empty(); ++n) {
      decode = {};
      decode.ticket = {1, ticket++};
      for (std::uint32_t r = 0; r < histories.size(); ++r)
        decode.host(r, static_cast<std::uint32_t>(histories[r].size()) - 1, {histories[r].back()});
      ASSERT_FALSE(rig.run(decode).has_error());
      rig.model->fed_step_settled(decode.ticket);
      for (std::uint32_t r = 0; r < histories.size(); ++r) {
        ASSERT_EQ(rig.slots[0].rows[r].id, scripted_next(rig.model->options(), histories[r]));
        histories[r].push_back(rig.slots[0].rows[r].id);
      }
    }
    if (s == kSeqs) break;
    ASSERT_FALSE(rig.wait(2).has_error());
    aside->fed_step_settled(prompt.ticket);
    histories.push_back(prompt_of(s));
    ASSERT_EQ(rig.slots[2].rows[0].id, scripted_next(rig.model->options(), histories.back()));
    histories.back().push_back(rig.slots[2].rows[0].id);
  }
  // One that hangs keeps the other stream from nothing.
  begin(prompt, 1000, 0);
  decode = {};
  decode.ticket = {1, 1001};
  decode.host(1, static_cast<std::uint32_t>(histories[1].size()) - 1, {histories[1].back()});
  ASSERT_FALSE(rig.run(decode).has_error());
  EXPECT_EQ(rig.slots[0].rows[0].id, scripted_next(rig.model->options(), histories[1]));
  EXPECT_FALSE(rig.driver->event_query(rig.slots[2].event).value());
  rig.model->release();
  ASSERT_FALSE(rig.wait(2).has_error());
  EXPECT_EQ(rig.model->settled(), ticket - 1);
  rig.close();
  EXPECT_FALSE(rig.driver->destroy_stream(prefill).has_error());
  const DriverUsage usage = rig.driver->usage();
  EXPECT_EQ(usage.streams + usage.events + usage.pinned_bytes + usage.device_bytes, 0u);
  Rig none({});
  EXPECT_EQ(none.model->prefill_feed(), nullptr);
  none.close();
}

TEST(Scripted, MasksTheArgmax) {
  Rig rig({});
  const ScriptedOptions& options = rig.model->options();
  const std::vector<Token> prompt = ids(5, 3);
  const Token first = scripted_next(options, prompt);
  const Token second = scripted_next(options, prompt, {first, RowMask::kNone});
  const Token third = scripted_next(options, prompt, {first, second});
  RigStep step;
  step.ticket = {1, 1};
  for (std::uint32_t s = 0; s < 4; ++s) {
    step.deltas.push_back({s, 0, s});
    step.host(s, 0, prompt);
  }
  step.rows[1].mask = {RowMask::kNone, first};
  step.rows[2].mask = {second, first};
  step.rows[3].mask = {second, third};
  ASSERT_FALSE(rig.run(step).has_error());
  EXPECT_EQ(rig.slots[0].rows[0].id, first);
  EXPECT_EQ(rig.slots[0].rows[1].id, second);
  EXPECT_EQ(rig.slots[0].rows[2].id, third);
  EXPECT_EQ(rig.slots[0].rows[3].id, first);
  rig.close();
}

TEST(Scripted, ReadsLogitsBack) {
  Rig rig({});
  RigStep step;
  step.ticket = {1, 1};
  const std::vector<Token> a = ids(4, 1), b = ids(9, 2), c = ids(2, 3);
  step.deltas = {{0, 0, 0}, {1, 0, 1}, {2, 0, 2}};
  step.host(0, 0, a).logits_row = 1;
  step.host(1, 0, b);
  step.host(2, 0, c).logits_row = 0;
  ASSERT_FALSE(rig.run(step).has_error());
  const auto expect = [&](std::span<const Token> history, std::size_t row) {
    ScriptedOracle oracle(rig.model->options());
    for (const Token id : history) oracle.push(id);
    const std::vector<float> logits = oracle.logits();
    EXPECT_EQ(std::vector<float>(rig.slots[0].logits + row * 256, rig.slots[0].logits + (row + 1) * 256), logits);
  };
  expect(c, 0);
  expect(a, 1);
  EXPECT_EQ(rig.slots[0].logits[2 * 256], 0.0f) << "only the rows that were asked";
  rig.close();
}

TEST(Scripted, AnAdapterChangesTheTokens) {
  Rig rig({.vocab = 50000});
  const std::vector<Token> prompt = ids(5, 3);
  RigStep step;
  step.ticket = {1, 1};
  step.deltas = {{0, 0, 0}, {1, 0, 1}};
  step.host(0, 0, prompt);
  step.host(1, 0, prompt).adapter_slot = 2;
  ASSERT_FALSE(rig.run(step).has_error());
  EXPECT_EQ(rig.slots[0].rows[0].id, scripted_next(rig.model->options(), prompt));
  EXPECT_EQ(rig.slots[0].rows[1].id, scripted_next(rig.model->options(), prompt, {}, 2));
  EXPECT_NE(rig.slots[0].rows[0].id, rig.slots[0].rows[1].id);
  rig.close();
}

TEST(Scripted, NothingIsReadBackBeforeTheEvent) {
  Rig rig({});
  struct Gate {
    std::binary_semaphore open{0};
  } gate;
  const HostFunction hold{[](void* context) {
                            static_cast<Gate*>(context)->open.acquire();
                            return ErrorCode::none;
                          },
                          &gate};
  ASSERT_FALSE(rig.driver->enqueue_host_function(hold, rig.stream).has_error());
  RigStep step;
  step.ticket = {1, 1};
  step.deltas = {{0, 0, 0}};
  step.host(0, 0, {1, 2});
  ASSERT_FALSE(rig.enqueue(step, 0).has_error());
  EXPECT_FALSE(rig.driver->event_query(rig.slots[0].event).value());
  EXPECT_EQ(rig.slots[0].rows[0].tag, 0u);
  gate.open.release();
  ASSERT_FALSE(rig.wait(0).has_error());
  EXPECT_EQ(rig.slots[0].rows[0].tag, step.ticket.tag());
  rig.close();
}

// In the order of the stream: what a step before wrote is copied, and what is copied in is there for the step after.
TEST(Scripted, BlocksAreCopiedInTheStreamsOrder) {
  Rig rig({.block_size = 4});
  const auto prompt = ids(10, 1);
  RigStep first, second, right;
  first.ticket = {1, 1};
  first.deltas = {{0, 0, 7}, {0, 1, 3}, {0, 2, 9}};
  first.host(0, 0, prompt);
  second.ticket = {1, 2};
  second.deltas = {{1, 0, 20}, {1, 1, 21}, {1, 2, 22}};
  second.host(1, 10, {5});
  const std::size_t bytes = 3 * rig.model->kv_block_bytes();
  void* memory = rig.driver->alloc_host_pinned(bytes).value();
  const std::vector<BlockId> from{7, 3, 9}, to{20, 21, 22};
  ASSERT_FALSE(rig.enqueue(first, 0).has_error());
  ASSERT_FALSE(rig.model->copy_blocks_out(from, memory, rig.stream).has_error());
  ASSERT_FALSE(rig.model->copy_blocks_in(to, memory, rig.stream).has_error());
  ASSERT_FALSE(rig.enqueue(second, 1).has_error());
  ASSERT_FALSE(rig.wait(1).has_error());
  right.ticket = {1, 3};
  right.host(0, 10, {5});
  ASSERT_FALSE(rig.run(right, 2).has_error());
  EXPECT_EQ(rig.slots[1].rows[0].id, rig.slots[2].rows[0].id);

  // A copy that lost a block would be noticed.
  ASSERT_FALSE(rig.model->copy_blocks_in(std::vector<BlockId>{21}, memory, rig.stream).has_error());
  RigStep wrong = second;
  wrong.ticket = {1, 4};
  ASSERT_FALSE(rig.run(wrong, 0).has_error());
  EXPECT_NE(rig.slots[0].rows[0].id, rig.slots[2].rows[0].id);
  ASSERT_FALSE(rig.driver->free_host_pinned(memory, bytes).has_error());
  rig.close();
}

TEST(Scripted, CopiesAreRefusedWhole) {
  Rig rig({.kv_blocks = 9});
  std::vector<std::byte> memory(9 * rig.model->kv_block_bytes());
  EXPECT_EQ(rig.model->copy_blocks_out(std::vector<BlockId>{0, 9}, memory.data(), rig.stream).error().code, ErrorCode::bad_plan);
  struct Gate {
    std::binary_semaphore open{0};
  } gate;
  const HostFunction hold{[](void* g) { return static_cast<Gate*>(g)->open.acquire(), ErrorCode::none; }, &gate};
  ASSERT_FALSE(rig.driver->enqueue_host_function(hold, rig.stream).has_error());
  std::uint32_t taken = 0;
  while (!rig.model->copy_blocks_out(std::vector<BlockId>{0}, memory.data(), rig.stream).has_error()) ++taken;
  EXPECT_EQ(taken, 8u);
  EXPECT_EQ(rig.model->copy_blocks_in(std::vector<BlockId>{0}, memory.data(), rig.stream).error().code, ErrorCode::overloaded);
  gate.open.release();
  rig.close();
}

TEST(Scripted, AStepTakesItsTime) {
  Rig rig({.step_ns = 300'000, .row_ns = 50'000, .token_ns = 1'000, .spin_ns = 100'000, .log_steps = 2});
  for (std::uint64_t n = 1; n <= 3; ++n) {
    RigStep step;
    step.ticket = {1, n};
    step.deltas = {{0, 0, 0}, {1, 0, 1}};
    step.host(0, 0, ids(10, 1));
    step.host(1, 0, ids(10, 2));
    ASSERT_FALSE(rig.run(step).has_error());
  }
  ASSERT_EQ(rig.model->times().size(), 2u) << "no more than asked";
  for (const ScriptedTimes& t : rig.model->times()) {
    EXPECT_LE(t.enqueued, t.started);
    EXPECT_GE(t.done - t.started, 300'000 + 2 * 50'000 + 20 * 1'000);
  }
  EXPECT_EQ(rig.model->times()[1].step, 2u);
  rig.close();
}

}  // namespace
}  // namespace troupe::device
