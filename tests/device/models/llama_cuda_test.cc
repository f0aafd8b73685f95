// The CUDA model without a GPU: what it says, refuses and repeats bit for bit; graphs; what the fake runtime would report.
#include "device/models/llama_cuda.h"

#include <gtest/gtest.h>

#include <semaphore>

#include "tests/device/models/llama_cuda_rig.h"

namespace troupe::device {
namespace {

const std::string kPath = "tests/golden/tiny-llama/tiny-llama.Q4_1.gguf";

LlamaOptions small() {
  LlamaOptions o;
  o.kv_blocks = 16;
  o.max_rows = 8;
  o.max_step_tokens = 64;
  o.n_slots = 8;
  o.context_limit = 100;
  return o;
}

class LlamaCuda : public fake_cuda::Fixture {};

TEST_F(LlamaCuda, InfoSaysWhatTheFileTheDeviceAndTheOptionsSay) {
  CudaRig rig(kPath, small());
  const ModelInfo& i = rig.info();
  EXPECT_EQ(i.architecture, "llama");
  EXPECT_EQ(i.vocab_size, 512u);
  EXPECT_EQ(i.context_length, 100u);
  EXPECT_EQ(i.eos_ids, std::vector<Token>{2});
  EXPECT_TRUE(i.supports_device_token_feed);
  EXPECT_EQ(i.arithmetic_id, "cuda/sm_90/bf16/kv-bf16/Q4_1");
}

TEST_F(LlamaCuda, FailedRowsFailAloneAndTheirDescendantsWithThem) {
  CudaRig rig(kPath, small());
  const auto want = rig.run({{.slot = 0, .position = 0, .ids = {5, 6, 7}}});
  const auto start = rig.run({{.slot = 1, .position = 0, .ids = {5, 6, 7}}, {.slot = 2, .position = 0, .ids = {8}}});
  EXPECT_TRUE(same_bits(start.logits[0], want.logits[0]));
  const Token good = start.rows[0].id;
  const auto second = rig.run({{.slot = 1, .position = 3, .feed_ring = start.ring, .feed_row = 0, .feed_tag = start.tag},
                               {.slot = 2, .position = 1, .feed_ring = start.ring, .feed_row = 1, .feed_tag = start.tag + 1},
                               {.slot = 0, .position = 3, .ids = {good}}});
  EXPECT_EQ(second.rows[0].status, CellStatus::ok);
  EXPECT_EQ(second.rows[0].input, good);
  EXPECT_EQ(second.rows[1], (Readback{0, 0, CellStatus::stale_feed, second.tag}));
  EXPECT_TRUE(same_bits(second.logits[0], second.logits[2]));
  const auto third = rig.run({{.slot = 1, .position = 4, .feed_ring = second.ring, .feed_row = 0, .feed_tag = second.tag},
                              {.slot = 2, .position = 2, .feed_ring = second.ring, .feed_row = 1, .feed_tag = second.tag}});
  EXPECT_EQ(third.rows[0].status, CellStatus::ok);
  EXPECT_EQ(third.rows[0].input, second.rows[0].id);
  EXPECT_EQ(third.rows[1], (Readback{0, 0, CellStatus::poisoned, third.tag}));
  const auto again = rig.run({{.slot = 2, .position = 1, .ids = {9}}, {.slot = 3, .position = 0, .ids = {8, 9}}});
  EXPECT_TRUE(same_bits(again.logits[0], again.logits[1]));
  // No blocks: poisoned alone.
  const auto bare = rig.run({{.slot = 4, .position = 0, .ids = {5, 6, 7}}}, false);
  EXPECT_EQ(bare.rows[0].status, CellStatus::poisoned);
}

TEST_F(LlamaCuda, MasksBarTheirIds) {
  CudaRig rig(kPath, small());
  const auto plain = rig.run({{.slot = 0, .position = 0, .ids = {5, 6, 7}}});
  auto order = plain.logits[0];
  const Token best = plain.rows[0].id;
  EXPECT_EQ(best, static_cast<Token>(std::max_element(order.begin(), order.end()) - order.begin()));
  order[best] = -1e30f;
  const auto second = static_cast<Token>(std::max_element(order.begin(), order.end()) - order.begin());
  const auto r = rig.run({{.slot = 1, .position = 0, .ids = {5, 6, 7}, .mask = {best, RowMask::kNone}},
                          {.slot = 2, .position = 0, .ids = {5, 6, 7}, .mask = {second, RowMask::kNone}}});
  EXPECT_EQ(r.rows[0].id, second);
  EXPECT_EQ(r.rows[1].id, best);
}

TEST_F(LlamaCuda, RefusesWhatIsOutOfRangeBeforeItIsEnqueued) {
  CudaRig rig(kPath, small());
  const auto code = [&](std::vector<RigRow> rows) {
    auto r = rig.launch(rows, false);
    return r ? ErrorCode::none : r.error().code;
  };
  EXPECT_EQ(code({{.slot = 8, .position = 0, .ids = {1}}}), ErrorCode::bad_plan);
  EXPECT_EQ(code({{.slot = 0, .position = 99, .ids = {1, 2}}}), ErrorCode::bad_plan);
  EXPECT_EQ(code({{.slot = 0, .position = 0, .ids = {512}}}), ErrorCode::bad_plan);
  EXPECT_EQ(code({{.slot = 0, .position = 0, .ids = std::vector<Token>(65, 1)}}), ErrorCode::bad_plan);
  EXPECT_EQ(code({{.slot = 0, .position = 0, .feed_row = 8}}), ErrorCode::bad_plan);
  EXPECT_EQ(code({{.slot = 0, .position = 0, .ids = {1}, .adapter = 1}}), ErrorCode::unsupported);
  EXPECT_EQ(fake_cuda::calls(fake_cuda::Call::kernel_launch), 0u);
  EXPECT_EQ(rig.run({{.slot = 0, .position = 0, .ids = {1}}}).rows[0].status, CellStatus::ok);
  StepView v;
  v.ticket = {1, 1000};
  EXPECT_EQ(rig.model().argmax_batch_to_feed(0, v, {}, 0, 0).error().code, ErrorCode::bad_plan);
  v = {};
  EXPECT_EQ(rig.model().decode_batch_fed(v, 0).error().code, ErrorCode::device_failed) << "no such stream";
}

TEST_F(LlamaCuda, OptionsThatItCannotTakeAreRefused) {
  auto driver = cuda_driver();
  const auto [source, config] = open_model(kPath);
  const auto code = [&, &source = source, &config = config](auto change) {
    LlamaOptions o = small();
    change(o);
    auto r = LlamaCudaModel::create(source, config, o, *driver);
    return r ? ErrorCode::none : r.error().code;
  };
  EXPECT_EQ(code([](LlamaOptions& o) { o.kv_blocks = 0; }), ErrorCode::bad_request);
  EXPECT_EQ(code([](LlamaOptions& o) { o.exact = true; }), ErrorCode::unsupported);
  EXPECT_EQ(driver->usage().device_bytes, 0u);
}

// R1: graphs, and the rows that fill them up, change no bit; nor do another batch, other chunks, another slot.
TEST_F(LlamaCuda, AReplayedStepHasTheBitsOfOneThatIsLaunched) {
  LlamaOptions launched = small();
  launched.max_graphs = 0;
  CudaRig plain(kPath, launched), graphs(kPath, small(), 7);
  expect_replays_have_the_bits_of_launches(plain, graphs, {{5, 6, 7}, {8}, {9, 10, 11, 12, 13, 14, 15, 16, 17, 18}, {3, 3}, {400}}, {4});
}

// The rows that fill a graph up write into no block of the pool; launched, nor replayed.
TEST_F(LlamaCuda, FilledRowsWriteNoKv) {
  CudaRig rig(kPath, small());
  for (std::uint32_t s = 0; s < 3; ++s) (void)rig.run({{.slot = s, .position = 0, .ids = {5, 6, 7 + s}}});
  for (std::uint32_t p = 3; p < 5; ++p) {
    const auto before = rig.read_kv();
    (void)rig.run({{.slot = 0, .position = p, .ids = {1}}, {.slot = 1, .position = p, .ids = {2}}, {.slot = 2, .position = p, .ids = {3}}});
    const auto after = rig.read_kv();
    std::size_t changed = 0;
    for (std::size_t b = 0; b < before.size(); ++b) changed += before[b] != after[b] ? 1 : 0;
    EXPECT_EQ(changed, 3u) << "one block of each sequence";
  }
  EXPECT_EQ(rig.figures().captured, 1u);
  EXPECT_EQ(rig.figures().replayed, 1u);
}

// R7: the layers behind it would run on the tokens and tables that an earlier step left, and write another row's KV.
TEST_F(LlamaCuda, BehindAFeedThatDidNotLaunchNoLayerIsLaunched) {
  LlamaOptions launched = small();
  launched.max_graphs = 0;
  for (const std::uint64_t nth : {1, 2}) {  // the changes of the tables, the feed
    CudaRig rig(kPath, launched);
    (void)rig.run({{.slot = 0, .position = 0, .ids = {5, 6, 7}}});
    const auto before = fake_cuda::calls(fake_cuda::Call::kernel_launch);
    fake_cuda::inject({.call = fake_cuda::Call::kernel_launch, .nth = nth, .error = cudaErrorInvalidValue});
    const auto failed = rig.launch({{.slot = 1, .position = 0, .ids = {8, 9, 10}}});
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::device_failed);
    EXPECT_EQ(fake_cuda::calls(fake_cuda::Call::kernel_launch), before + 2);
    (void)rig.read_kv();  // the stream has passed what was enqueued
    rig.model().fed_step_settled({1, 2});
    EXPECT_EQ(rig.run({{.slot = 2, .position = 0, .ids = {5, 6, 7}}}).rows[0].status, CellStatus::ok);
  }
}

TEST_F(LlamaCuda, BlocksAreCopiedOutAndIn) {
  CudaRig rig(kPath, small());
  std::vector<Token> prompt;
  for (Token i = 0; i < 37; ++i) prompt.push_back(i * 11 % 500);
  auto want = rig.run({{.slot = 0, .position = 0, .ids = prompt}});
  EXPECT_TRUE(rig.copy_slot(0, 1));
  const auto next = rig.run({{.slot = 0, .position = 37, .ids = {want.rows[0].id}}, {.slot = 1, .position = 37, .ids = {want.rows[0].id}}});
  EXPECT_TRUE(same_bits(next.logits[0], next.logits[1]));
  std::vector<BlockId> blocks = {16};
  EXPECT_EQ(rig.model().copy_blocks_out(blocks, nullptr, 0).error().code, ErrorCode::bad_plan);
  blocks.assign(65, 1);
  EXPECT_EQ(rig.model().copy_blocks_in(blocks, nullptr, 0).error().code, ErrorCode::bad_plan);
}

// Adapters: loaded beside the steps, shown and hidden; a row's bits are its own, and a slot that is not in the table is refused.
TEST_F(LlamaCuda, AdaptersInTheirSlots) {
  const std::string file = "tests/golden/tiny-llama/tiny-llama.F32.gguf", folder = "tests/golden/tiny-llama/adapters/";
  LlamaOptions o = small();
  o.max_loras = 2;
  CudaRig plain(file, small()), rig(file, o);
  const auto want = plain.run({{.slot = 0, .position = 0, .ids = {5, 6, 7}}});
  const auto refused = rig.launch({{.slot = 0, .position = 0, .ids = {5, 6, 7}, .adapter = 1}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_plan);
  ASSERT_TRUE(rig.model().load_adapter(1, folder + "all-r4"));
  ASSERT_TRUE(rig.model().load_adapter(2, folder + "qv-r8"));
  ASSERT_TRUE(rig.model().show_adapter(1));
  ASSERT_TRUE(rig.model().show_adapter(2));
  const auto mixed = rig.run({{.slot = 0, .position = 0, .ids = {5, 6, 7}, .adapter = 2},
                              {.slot = 1, .position = 0, .ids = {5, 6, 7}},
                              {.slot = 2, .position = 0, .ids = {5, 6, 7}, .adapter = 1}});
  EXPECT_TRUE(same_bits(mixed.logits[1], want.logits[0]));
  EXPECT_FALSE(same_bits(mixed.logits[0], want.logits[0]));
  EXPECT_FALSE(same_bits(mixed.logits[0], mixed.logits[2]));
  // Decode: with an adapter launched, beside it and without replayed.
  const auto next = rig.run({{.slot = 0, .position = 3, .ids = {8}, .adapter = 2}, {.slot = 1, .position = 3, .ids = {8}}});
  EXPECT_EQ(rig.figures().replayed, 0u);
  for (std::uint64_t replayed = 0; replayed < 2; ++replayed) {
    const auto base = rig.run({{.slot = 1, .position = 3, .ids = {8}}});
    EXPECT_EQ(rig.figures().replayed, replayed);
    EXPECT_TRUE(same_bits(next.logits[1], base.logits[0]));
  }
  // Out of the table, and another in its place.
  ASSERT_TRUE(rig.model().hide_adapter(2));
  EXPECT_FALSE(rig.launch({{.slot = 0, .position = 4, .ids = {8}, .adapter = 2}}));
  ASSERT_TRUE(rig.model().load_adapter(2, folder + "all-r4"));
  ASSERT_TRUE(rig.model().show_adapter(2));
  const auto again = rig.run({{.slot = 3, .position = 0, .ids = {5, 6, 7}, .adapter = 2}});
  EXPECT_TRUE(same_bits(again.logits[0], mixed.logits[2]));
  // From one slot's memory to the other's, and what comes out is what the host's model gives.
  const auto image = rig.model().read_adapter(2);
  ASSERT_TRUE(image) << image.error().what;
  {
    LlamaOptions on_host;
    on_host.max_loras = 2;
    LlamaRig host(file, on_host);
    ASSERT_TRUE(host.model().load_adapter(1, folder + "all-r4"));
    EXPECT_EQ(host.model().read_adapter(1).value().bytes, image.value().bytes);
  }
  ASSERT_TRUE(rig.model().load_adapter_image(3, image.value()));
  ASSERT_TRUE(rig.model().show_adapter(3));
  const auto promoted = rig.run({{.slot = 4, .position = 0, .ids = {5, 6, 7}, .adapter = 3}});
  EXPECT_TRUE(same_bits(promoted.logits[0], mixed.logits[2]));
  // Whatever call of reading fails, it is said, and nothing is left; the slot stays as it is.
  {
    using fake_cuda::Call;
    const auto before = rig.driver().usage();
    for (const Call call :
         {Call::cudaStreamCreateWithFlags, Call::cudaEventCreateWithFlags, Call::cudaHostAlloc, Call::cudaMemcpyAsync,
          Call::cudaEventRecord, Call::cudaEventSynchronize, Call::cudaEventDestroy, Call::cudaFreeHost, Call::cudaStreamDestroy}) {
      fake_cuda::inject({.call = call, .nth = 1, .error = cudaErrorInvalidValue});
      const auto read = rig.model().read_adapter(2);
      ASSERT_FALSE(read) << fake_cuda::name(call);
      EXPECT_EQ(read.error().code, ErrorCode::device_failed);
      EXPECT_EQ(rig.driver().usage().pinned_bytes, before.pinned_bytes) << fake_cuda::name(call);
      EXPECT_EQ(rig.driver().usage().streams, before.streams) << fake_cuda::name(call);
      EXPECT_EQ(rig.driver().usage().events, before.events) << fake_cuda::name(call);
    }
    EXPECT_EQ(rig.model().read_adapter(2).value().bytes, image.value().bytes);
  }
  // Whatever call of a load fails, the slot stays out of the table and nothing is left.
  using fake_cuda::Call;
  const auto usage = rig.driver().usage();
  for (const Call call :
       {Call::cudaStreamCreateWithFlags, Call::cudaEventCreateWithFlags, Call::cudaHostAlloc, Call::cudaMemcpyAsync, Call::cudaEventRecord,
        Call::cudaEventSynchronize, Call::cudaEventDestroy, Call::cudaFreeHost, Call::cudaStreamDestroy}) {
    ASSERT_TRUE(rig.model().hide_adapter(1));
    fake_cuda::inject({.call = call, .nth = 1, .error = cudaErrorInvalidValue});
    const auto loaded = rig.model().load_adapter(1, folder + "all-r4");
    ASSERT_FALSE(loaded) << fake_cuda::name(call);
    EXPECT_EQ(loaded.error().code, ErrorCode::device_failed);
    EXPECT_FALSE(rig.model().show_adapter(1));
    EXPECT_EQ(rig.driver().usage().pinned_bytes, usage.pinned_bytes) << fake_cuda::name(call);
    EXPECT_EQ(rig.driver().usage().events, usage.events) << fake_cuda::name(call);
    EXPECT_EQ(rig.driver().usage().streams, usage.streams) << fake_cuda::name(call);
  }
}

// Fewer graphs than sizes: the one used longest ago goes, and never one that a step in flight replays.
TEST_F(LlamaCuda, GraphsAreBounded) {
  LlamaOptions o = small();
  o.max_graphs = 2;
  CudaRig rig(kPath, o);
  RigResult r =
      rig.run({{.slot = 0, .position = 0, .ids = {5}}, {.slot = 1, .position = 0, .ids = {6}}, {.slot = 2, .position = 0, .ids = {7}}});
  for (std::uint32_t i = 0; i < 12; ++i) {
    std::vector<RigRow> rows;
    for (std::uint32_t s = 0; s < 1 + i / 4; ++s)
      rows.push_back({.slot = s, .position = (s < 2 ? 1 : 2) + i % 4 + (s < 1 ? i / 4 * 4 : 0), .ids = {5 + i}});
    r = rig.run(rows);
    EXPECT_LE(rig.driver().usage().graphs, 2u);
  }
  EXPECT_GT(rig.figures().evicted, 0u);
  EXPECT_EQ(rig.figures().failed, 0u);
}

// A capture that fails costs a graph and changes no bit.
TEST_F(LlamaCuda, WithoutAGraphTheKernelsAreLaunched) {
  CudaRig rig(kPath, small());
  const auto want = rig.run({{.slot = 0, .position = 0, .ids = {5, 6}}});
  (void)rig.run({{.slot = 1, .position = 0, .ids = {5}}});
  (void)rig.run({{.slot = 2, .position = 0, .ids = {5}}});
  (void)rig.run({{.slot = 3, .position = 0, .ids = {5}}});
  using fake_cuda::Call;
  std::uint32_t slot = 1;
  // One row has its graph by now; two have none yet.
  for (const Call call : {Call::cudaStreamBeginCapture, Call::cudaStreamEndCapture, Call::cudaGraphInstantiate}) {
    fake_cuda::inject({.call = call, .nth = 1, .error = cudaErrorInvalidValue});
    const auto r = rig.run({{.slot = slot, .position = 1, .ids = {6}}, {.slot = 7, .position = 0, .ids = {5}}});
    EXPECT_TRUE(same_bits(r.logits[0], want.logits[0])) << fake_cuda::name(call);
    ++slot;
  }
  EXPECT_EQ(rig.figures().failed, 3u);
  EXPECT_EQ(rig.figures().captured, 1u);
}

// Negative controls. A gate holds the stream, so that what is enqueued stays in flight.
struct Held {
  explicit Held(CudaRig& rig) {
    EXPECT_TRUE(rig.driver().enqueue_host_function({[](void* context) {
                                                      static_cast<Held*>(context)->open.acquire();
                                                      return ErrorCode::none;
                                                    },
                                                    this},
                                                   rig.stream()));
  }
  std::binary_semaphore open{0};
};

TEST(LlamaCudaControl, AGraphEvictedWhilePinnedIsCaught) {
  fake_cuda::reset();
  {
    LlamaOptions o = small();
    o.max_graphs = 1;
    CudaRig rig(kPath, o);
    const RigResult start = rig.run({{.slot = 0, .position = 0, .ids = {5}}});
    rig.model().fed_step_settled(rig.ticket(start.ring));
    Held held(rig);
    const std::uint32_t first = rig.launch({{.slot = 0, .position = 1, .ids = {6}}}).value();
    EXPECT_EQ(rig.figures().replayed, 1u);
    rig.model().fed_step_settled(rig.ticket(first));  // it has not
    const std::uint32_t second = rig.launch({{.slot = 0, .position = 2, .ids = {6}}, {.slot = 1, .position = 0, .ids = {6}}}).value();
    EXPECT_EQ(rig.figures().evicted, 1u);
    held.open.release();
    EXPECT_TRUE(rig.synchronize(first));
    EXPECT_TRUE(rig.synchronize(second));
  }
  fake_cuda::claim_reports("a graph is pinned until its step has settled");
  fake_cuda::expect_clean();
}

TEST(LlamaCudaControl, AnUploadSlotUsedAgainTooEarlyIsRefusedAndCaught) {
  fake_cuda::reset();
  {
    CudaRig rig(kPath, small());
    Held held(rig);
    const std::uint32_t first = rig.launch({{.slot = 0, .position = 0, .ids = {6}}}).value();
    const Ticket step = rig.ticket(first);
    rig.use_ring(first);
    const auto early = rig.launch({{.slot = 0, .position = 1, .ids = {6}}});
    ASSERT_FALSE(early);
    EXPECT_EQ(early.error().code, ErrorCode::ring_exhausted);
    EXPECT_TRUE(fake_cuda::take_reports().empty());
    rig.model().fed_step_settled(step);  // it has not
    (void)rig.launch({{.slot = 0, .position = 1, .ids = {6}}});
    held.open.release();
    rig.use_ring(first + 1);
    (void)rig.run({{.slot = 1, .position = 0, .ids = {6}}});  // behind all of it
  }
  EXPECT_TRUE(fake_cuda::any_says(fake_cuda::take_reports(), "an upload slot was reused too early"));
  fake_cuda::reset();
}

// Whatever call of the load fails, the error comes back and nothing is left.
TEST(LlamaCudaFault, LoadingGivesEverythingBack) {
  using fake_cuda::Call;
  const auto [source, config] = open_model(kPath);
  for (const bool sticky : {false, true}) {
    for (std::size_t c = 0; c < fake_cuda::kCalls; ++c) {
      const auto call = static_cast<Call>(c);
      bool failed = true;
      for (std::uint64_t nth = 1; failed && nth < 40; ++nth) {
        fake_cuda::reset();
        {
          auto driver = cuda_driver();
          fake_cuda::inject(
              {.call = call, .nth = nth, .error = sticky ? cudaErrorIllegalAddress : cudaErrorInvalidValue, .sticky = sticky});
          auto made = LlamaCudaModel::create(source, config, small(), *driver);
          failed = !made;
          const ErrorCode code = failed ? made.error().code : ErrorCode::none;
          EXPECT_TRUE(!failed || code == (sticky ? ErrorCode::device_lost : ErrorCode::device_failed))
              << fake_cuda::name(call) << " " << nth;
        }
        for (const std::string& report : fake_cuda::take_reports()) ADD_FAILURE() << fake_cuda::name(call) << " " << nth << ": " << report;
        if (!sticky) {
          for (const std::string& leak : fake_cuda::leaks()) ADD_FAILURE() << fake_cuda::name(call) << " " << nth << ": " << leak;
        }
      }
      EXPECT_FALSE(failed && call != Call::count) << fake_cuda::name(call);
    }
  }
  fake_cuda::reset();
}

}  // namespace
}  // namespace troupe::device
