#include "tools/bench/gpu_bench.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "device/cuda/driver.h"
#include "device/models/load.h"
#include "tools/bench/model_bench.h"
#include "tools/bench/prefill_bench.h"
#include "tools/bench/timed_driver.h"

namespace troupe::tools {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double at(std::vector<double>& values, double quantile) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[static_cast<std::size_t>(quantile * static_cast<double>(values.size() - 1))];
}

// Memory and a stream of the driver's, given back at the end.
struct Place {
  explicit Place(device::Driver& driver) : driver(driver) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    if (event != 0) (void)driver.destroy_event(event);
    if (stream != 0) (void)driver.destroy_stream(stream);
    if (host != nullptr) (void)driver.free_host_pinned(host, bytes);
    for (const device::DevicePtr p : memory) {
      if (p != 0) (void)driver.free_device(p, bytes);
    }
  }
  Result<void> make(std::size_t size) {
    bytes = size;
    TROUPE_TRY(stream, driver.create_stream());
    TROUPE_TRY(event, driver.create_event());
    TROUPE_TRY(host, driver.alloc_host_pinned(bytes));
    for (device::DevicePtr& p : memory) {
      TROUPE_TRY(p, driver.alloc_device(bytes));
    }
    return success();
  }
  // Until the device has passed all that is on the stream; asks, as the control thread does.
  Result<void> finish() {
    TROUPE_TRY(driver.record_event(event, stream));
    for (;;) {
      TROUPE_TRY(const bool done, driver.event_query(event));
      if (done) return success();
    }
  }
  device::Driver& driver;
  device::Stream stream = 0;
  device::Event event = 0;
  void* host = nullptr;
  device::DevicePtr memory[2] = {};
  std::size_t bytes = 0;
};

// GB/s of `once`, which enqueues a copy; the best of some.
template <class F>
Result<double> copy_rate(Place& place, F&& once) {
  double best = 0.0;
  for (int i = 0; i < 5; ++i) {
    const Clock::time_point begin = Clock::now();
    TROUPE_TRY(once());
    TROUPE_TRY(place.finish());
    best = std::max(best, 1e-9 * static_cast<double>(place.bytes) / seconds_since(begin));
  }
  return best;
}

template <class F>
Result<std::vector<double>> latency_us(Place& place, std::uint32_t rounds, F&& once) {
  std::vector<double> out;
  for (std::uint32_t i = 0; i < rounds; ++i) {
    const Clock::time_point begin = Clock::now();
    TROUPE_TRY(once());
    TROUPE_TRY(place.finish());
    out.push_back(1e6 * seconds_since(begin));
  }
  return out;
}

// Answers the bytes a second that the device moves in a copy of its own memory, read and written.
Result<double> bench_device(Report& report, const GpuBenchOptions& o) {
  TROUPE_TRY(auto driver, device::make_cuda_driver({}));
  TROUPE_TRY(const std::string target, driver->kernel_target());
  report.section("Device " + driver->name() + ", " + target);
  Place place(*driver);
  TROUPE_TRY(place.make(o.copy_bytes));
  const auto copy_in = [&](std::size_t n) { return driver->copy_h2d_async(place.memory[0], place.host, n, place.stream); };
  const auto copy_out = [&](std::size_t n) { return driver->copy_d2h_async(place.host, place.memory[0], n, place.stream); };
  TROUPE_TRY(void* const native, driver->native_stream(place.stream));
  TROUPE_TRY(const double inside, copy_rate(place, [&]() -> Result<void> {
               const cudaError_t error =
                   cudaMemcpyAsync(reinterpret_cast<void*>(place.memory[1]), reinterpret_cast<const void*>(place.memory[0]), o.copy_bytes,
                                   cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(native));
               if (error != cudaSuccess)
                 return Error{ErrorCode::device_failed, fmt::format("cudaMemcpyAsync: {}", cudaGetErrorName(error))};
               return success();
             }));
  report.add("copy on the device, bytes read and written", 2 * inside, "GB/s");
  TROUPE_TRY(const double up, copy_rate(place, [&] { return copy_in(o.copy_bytes); }));
  report.add("copy to the device", up, "GB/s");
  TROUPE_TRY(const double down, copy_rate(place, [&] { return copy_out(o.copy_bytes); }));
  report.add("copy to the host", down, "GB/s");

  const auto add = [&](const char* name, std::vector<double> us) {
    report.add(fmt::format("{}, median", name), at(us, 0.5), "us");
    report.add(fmt::format("{}, 99 %", name), at(us, 0.99), "us");
  };
  TROUPE_TRY(auto event, latency_us(place, o.rounds, []() -> Result<void> { return success(); }));
  add("event: recorded on an idle stream -> seen", std::move(event));
  TROUPE_TRY(auto small_down, latency_us(place, o.rounds, [&] { return copy_out(std::min<std::size_t>(4096, o.copy_bytes)); }));
  add("4 KiB to the host and an event: enqueued -> seen", std::move(small_down));
  TROUPE_TRY(auto small_up, latency_us(place, o.rounds, [&] { return copy_in(std::min<std::size_t>(4096, o.copy_bytes)); }));
  add("4 KiB to the device and an event: enqueued -> seen", std::move(small_up));
  return 2e9 * inside;
}

struct DecodeTimes {
  double step_ms = 0;     // on the device
  double period_ms = 0;   // from one step's begin to the next one's
  double gap_us = 0;      // a step's end -> the next one's begin
  double enqueue_us = 0;  // on the host
  double busy = 0;
};

// A model under one depth, with or without graphs.
class Decoder {
 public:
  Decoder(const GpuBenchOptions& o, std::uint32_t depth, std::uint32_t graphs) : o_(o) {
    load_.max_batch = *std::max_element(o.batches.begin(), o.batches.end());
    load_.depth = depth;
    load_.max_graphs = graphs;
    load_.kv_blocks = load_.max_batch * ((o.prompt + o.tokens) / load_.block_size + 2);
  }
  Result<void> open(const std::string& path) {
    TROUPE_TRY(auto driver, device::make_cuda_driver({}));
    TROUPE_TRY(auto timed, TimedDriver::create(std::move(driver), 4096));
    driver_ = timed.get();
    RuntimeOptions settings;
    settings.spin = std::chrono::milliseconds(10);
    TROUPE_TRY(bench_, ModelBench::open(path, load_, settings, std::move(timed)));
    return success();
  }
  Result<DecodeTimes> run(std::uint32_t batch) {
    TROUPE_TRY(bench_->decode(batch, o_.prompt, 4));  // graphs are captured
    driver_->start();
    TROUPE_TRY(bench_->decode(batch, o_.prompt, o_.tokens));
    TROUPE_TRY(const auto steps, driver_->steps());
    // Requests begin over some steps, by their prompts, which share those steps' tokens with who decodes already, and end over as
    // many: between, all decode.
    const std::size_t edge = 2 * std::size_t{batch} * o_.prompt / load_.step_tokens + 3;
    if (o_.tokens <= 2 * edge + 2 || steps.size() < o_.tokens) {
      return Error{ErrorCode::internal, fmt::format("{} steps were timed: too few to tell", steps.size())};
    }
    const std::size_t first = steps.size() - o_.tokens + edge, last = steps.size() - 1 - edge;
    std::vector<double> step, period, gap, enqueue;
    double busy = 0.0;
    for (std::size_t i = first; i < last; ++i) {
      step.push_back(steps[i].end_ms - steps[i].begin_ms);
      period.push_back(steps[i + 1].begin_ms - steps[i].begin_ms);
      gap.push_back(1000.0 * (steps[i + 1].begin_ms - steps[i].end_ms));
      enqueue.push_back(steps[i].enqueue_us);
      busy += step.back();
    }
    return DecodeTimes{at(step, 0.5), at(period, 0.5), at(gap, 0.5), at(enqueue, 0.5),
                       busy / (steps[last].begin_ms - steps[first].begin_ms)};
  }
  double step_bytes(std::uint32_t batch) const {
    return static_cast<double>(bench_->size().tensor_bytes) + bench_->size().kv_bytes * batch * (o_.prompt + o_.tokens / 2);
  }
  const ModelSize& size() const { return bench_->size(); }
  Result<void> stop() { return bench_->stop(); }

 private:
  const GpuBenchOptions& o_;
  device::LoadOptions load_;
  TimedDriver* driver_ = nullptr;
  std::unique_ptr<ModelBench> bench_;
};

Result<void> bench_prompts(Report& report, const std::string& path, const GpuBenchOptions& o) {
  PrefillBench bench;
  bench.decoding = o.decoding, bench.tokens = o.decoded, bench.warm = o.warm, bench.prompts = o.prompts, bench.prompt = o.long_prompt;
  bench.start = [&](std::uint32_t streams) -> Result<std::unique_ptr<Runtime>> {
    device::LoadOptions load;
    load.max_batch = o.decoding + 1;
    load.kv_blocks = o.decoding * (o.decoded / load.block_size + 2) + o.long_prompt / load.block_size + 2;
    load.prefill_stream = streams > 2;
    TROUPE_TRY(auto driver, device::make_cuda_driver({}));
    TROUPE_TRY(auto loaded, device::load_model(path, load, std::move(driver)));
    RuntimeOptions options;
    options.max_batch = load.max_batch;
    options.streams = streams;
    options.spin = std::chrono::milliseconds(10);
    return Runtime::start(options, std::move(loaded.driver), std::move(loaded.model));
  };
  return bench_prefill(report, bench);
}

}  // namespace

Result<void> bench_gpu(Report& report, const std::string& model, const GpuBenchOptions& o) {
  TROUPE_TRY(const double copy_rate, bench_device(report, o));
  for (const std::uint32_t graphs : {8u, 0u}) {
    for (const std::uint32_t depth : {1u, 2u}) {
      report.section(fmt::format("Decode, depth {} ({}), {}", depth, depth == 1 ? "sync" : "async", graphs != 0 ? "graphs" : "no graphs"));
      Decoder decoder(o, depth, graphs);
      TROUPE_TRY(decoder.open(model));
      if (graphs != 0 && depth == 1) {
        report.add("weights", 1e-6 * static_cast<double>(decoder.size().tensor_bytes), "MB");
        report.add("loaded in", decoder.size().load_s, "s");
      }
      for (const std::uint32_t batch : o.batches) {
        TROUPE_TRY(const DecodeTimes t, decoder.run(batch));
        const std::string name = fmt::format("batch {}, ", batch);
        report.add(name + "a step on the device", t.step_ms, "ms");
        report.add(name + "of the time that its bytes take at the rate of a copy",
                   100.0 * decoder.step_bytes(batch) / copy_rate / (1e-3 * t.step_ms), "%");
        report.add(name + "from step to step", t.period_ms, "ms");
        report.add(name + "the device is busy", 100.0 * t.busy, "%");
        report.add(name + (depth == 1 ? "launch to await adds to a step" : "a step's end -> the next one's begin"), t.gap_us, "us");
        report.add(name + "to enqueue a step", t.enqueue_us, "us");
      }
      TROUPE_TRY(decoder.stop());
    }
  }
  return bench_prompts(report, model, o);
}

}  // namespace troupe::tools
