// The benchmarks for a GPU (tools/bench/gpu_bench.h), on the fake runtime and the emulation, with a model that tools/bench makes: each
// of their calls is one that CUDA takes, and the report is whole. Its figures mean nothing here.
#include <gtest/gtest.h>

#include <filesystem>

#include "device/cuda/driver.h"
#include "device/models/load.h"
#include "tests/fake_cuda/fixture.h"
#include "tests/golden/golden.h"
#include "tools/bench/gpu_bench.h"
#include "tools/bench/random_model.h"
#include "tools/bench/timed_driver.h"

namespace troupe::tools {
namespace {

constexpr const char* kTokenizer = "tests/golden/tiny-llama";

std::string model() {
  const std::string folder = testing::TempDir() + "/random";
  const auto written = write_random_model(*shape_named("tiny"), folder, kTokenizer);
  EXPECT_TRUE(written) << written.error().what;
  return folder;
}

TEST(RandomModel, IsReadAndIsTheSameEachTime) {
  const std::string folder = model(), again = testing::TempDir() + "/again", other = testing::TempDir() + "/other";
  ASSERT_TRUE(write_random_model(*shape_named("tiny"), again, kTokenizer));
  ASSERT_TRUE(write_random_model(*shape_named("tiny"), other, kTokenizer, 2));
  const std::string bytes = golden::read_file(folder + "/model.safetensors");
  EXPECT_EQ(bytes, golden::read_file(again + "/model.safetensors"));
  EXPECT_NE(bytes, golden::read_file(other + "/model.safetensors"));
  const auto loaded = device::load_model(folder);
  ASSERT_TRUE(loaded) << loaded.error().what;
  EXPECT_EQ(loaded.value().model->info().vocab_size, 512u);
  EXPECT_EQ(loaded.value().file.tensors_by_type, (std::vector<std::pair<std::string, std::uint32_t>>{{"BF16", 20}}));
}

// A vocabulary that the tokenizer does not have.
TEST(RandomModel, TheTokenizerGrowsWithTheVocabulary) {
  ModelShape shape = *shape_named("tiny");
  shape.vocab = 9000;
  const std::string folder = testing::TempDir() + "/wide";
  ASSERT_TRUE(write_random_model(shape, folder, kTokenizer));
  const auto loaded = device::load_model(folder);
  const auto tokenizer = device::load_model(kTokenizer);
  ASSERT_TRUE(loaded) << loaded.error().what;
  EXPECT_EQ(loaded.value().model->info().vocab_size, 9000u);
  const char* const words = "no text has an unused8999 token";
  EXPECT_EQ(loaded.value().text.encode(words).value(), tokenizer.value().text.encode(words).value());
}

TEST(RandomModel, SaysWhatIsMissing) {
  const auto written = write_random_model(*shape_named("tiny"), testing::TempDir() + "/none", "no-such-folder");
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().what.find("no-such-folder/tokenizer.json"), std::string::npos) << written.error().what;
  EXPECT_FALSE(shape_named("llama-2b"));
}

class GpuBench : public fake_cuda::Fixture {
  void SetUp() override { fake_cuda::reset({.timed_events = true}); }
};

TEST_F(GpuBench, TimesTheStepsOfARun) {
  auto driver = device::make_cuda_driver({});
  ASSERT_TRUE(driver) << driver.error().what;
  auto timed = TimedDriver::create(std::move(driver.value()), 3);
  ASSERT_TRUE(timed) << timed.error().what;
  device::Driver& d = *timed.value();
  const device::Stream stream = d.create_stream().value();
  const device::Event event = d.create_event().value();
  void* const host = d.alloc_host_pinned(64).value();
  const device::DevicePtr memory = d.alloc_device(64).value();
  const auto step = [&] {
    ASSERT_TRUE(d.copy_h2d_async(memory, host, 64, stream));
    ASSERT_TRUE(d.copy_h2d_async(memory, host, 32, stream));
    ASSERT_TRUE(d.record_event(event, stream));
    ASSERT_TRUE(d.event_synchronize(event));
  };
  step();  // before start(): not taken
  timed.value()->start();
  step();
  step();
  const auto two = timed.value()->steps();
  ASSERT_TRUE(two) << two.error().what;
  ASSERT_EQ(two.value().size(), 2u);
  EXPECT_EQ(two.value()[0].begin_ms, 0.0);
  EXPECT_GE(two.value()[0].end_ms, two.value()[0].begin_ms);
  EXPECT_GE(two.value()[1].begin_ms, two.value()[0].end_ms);
  timed.value()->start();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(timed.value()->steps().value().size(), 3u) << "as many as there is room for";
}

TEST_F(GpuBench, ReportsEveryFigure) {
  GpuBenchOptions o;
  o.copy_bytes = 1 << 16;
  o.rounds = 10;
  o.batches = {1, 4};
  o.prompt = 4, o.tokens = 16;
  o.decoding = 2, o.decoded = 60, o.warm = 6, o.prompts = 1, o.long_prompt = 40;
  Report report;
  const auto done = bench_gpu(report, model(), o);
  ASSERT_TRUE(done) << done.error().what;
  const std::string path = testing::TempDir() + "/figures.json";
  ASSERT_TRUE(report.write_json(path));
  const auto json = boost::json::parse(golden::read_file(path));
  const std::string text = boost::json::serialize(json);
  for (const char* what : {"copy on the device", "4 KiB to the host", "batch 1, a step on the device", "batch 4, the device is busy",
                           "depth 1 (sync), graphs", "depth 2 (async), no graphs", "to enqueue a step", "one stream for steps, longest gap",
                           "prefill on a stream of its own, longest gap"}) {
    EXPECT_NE(text.find(what), std::string::npos) << what;
  }
  EXPECT_EQ(text.find("null"), std::string::npos) << text;
}

TEST(GpuBenchWithoutAGpu, SaysSo) {
  fake_cuda::reset({.driver_installed = false});
  Report report;
  const auto done = bench_gpu(report, "none");
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().what.find("no NVIDIA driver"), std::string::npos) << done.error().what;
  fake_cuda::reset();
}

}  // namespace
}  // namespace troupe::tools
