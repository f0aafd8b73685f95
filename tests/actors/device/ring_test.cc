#include "actors/device/ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "device/host/driver.h"

namespace troupe::actors {
namespace {

constexpr std::uint32_t kSlots = 3;

ModelInfo model() {
  ModelInfo m;
  m.vocab_size = 10;
  m.max_rows = 4;
  m.max_logits_rows = 2;
  m.max_step_tokens = 16;
  return m;
}

bool nothing_alive(const device::Driver& driver) {
  const device::DriverUsage u = driver.usage();
  return u.streams == 0 && u.events == 0 && u.pinned_bytes == 0 && u.device_bytes == 0 && u.graphs == 0;
}

TEST(Ring, MakesEverySlotAndGivesAllBack) {
  auto driver = device::make_host_driver();
  Ring ring(*driver, model(), {64, 48}, kSlots);
  ASSERT_TRUE(ring.make());
  EXPECT_NE(ring.stream(), 0u);
  ASSERT_EQ(ring.slots().size(), kSlots);
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    const SlotHandles& slot = ring.slots()[i];
    EXPECT_EQ(slot.slot, i);
    EXPECT_TRUE(slot.event != 0 && slot.readback != 0 && slot.logits != 0 && slot.cells != 0 && slot.upload != 0);
  }
  EXPECT_EQ(driver->usage().events, kSlots);
  EXPECT_EQ(driver->usage().device_bytes, kSlots * 64u);
  EXPECT_TRUE(ring.destroy());
  EXPECT_TRUE(nothing_alive(*driver));
  EXPECT_TRUE(ring.destroy());
}

// Whichever call of start fails, what was made before it is given back, and the error is the driver's.
TEST(Ring, AFailedStartLeavesNothing) {
  using device::DriverCall;
  for (const DriverCall call : {DriverCall::create_stream, DriverCall::create_event, DriverCall::alloc_pinned, DriverCall::alloc_device}) {
    for (std::uint64_t nth = 1;; ++nth) {
      auto driver = device::make_host_driver();
      driver->inject({call, nth, ErrorCode::device_failed, false});
      Ring ring(*driver, model(), {64, 48}, kSlots);
      const Result<void> made = ring.make();
      if (made) {
        EXPECT_GT(nth, 1u);
        EXPECT_TRUE(ring.destroy());
        break;
      }
      EXPECT_EQ(made.error().code, ErrorCode::device_failed);
      EXPECT_TRUE(nothing_alive(*driver)) << static_cast<int>(call) << " call " << nth;
    }
  }
}

// A stream for copies, with an event for each place that orders it; or none.
TEST(Ring, CopiesHaveAStreamIfTheyAreToHave) {
  auto driver = device::make_host_driver();
  const CopyPlaces places{2, 4, 64, true};
  Ring with(*driver, model(), {64, 48}, kSlots, places);
  ASSERT_TRUE(with.make());
  EXPECT_NE(with.copy_stream(), 0u);
  EXPECT_NE(with.copy_stream(), with.stream());
  EXPECT_EQ(driver->usage().streams, 2u);
  EXPECT_EQ(driver->usage().events, kSlots + 4u);
  for (const CopyHandles& place : with.places()) EXPECT_TRUE(place.order != 0 && place.order != place.event);
  EXPECT_TRUE(with.destroy());
  EXPECT_TRUE(nothing_alive(*driver));
  Ring without(*driver, model(), {64, 48}, kSlots, {2, 4, 64, false});
  ASSERT_TRUE(without.make());
  EXPECT_EQ(without.copy_stream(), 0u);
  for (const CopyHandles& place : without.places()) EXPECT_EQ(place.order, 0u);
  EXPECT_TRUE(without.destroy());
  EXPECT_TRUE(nothing_alive(*driver));
}

// The last slots are for steps on a stream of their own.
TEST(Ring, PrefillHasAStreamAndSlotsIfItIsToHave) {
  using device::DriverCall;
  for (std::uint64_t nth = 1;; ++nth) {
    auto driver = device::make_host_driver();
    driver->inject({DriverCall::create_stream, nth, ErrorCode::device_failed, false});
    Ring ring(*driver, model(), {64, 48}, 2 * kSlots, {}, kSlots);
    const Result<void> made = ring.make();
    if (!made) {
      EXPECT_TRUE(nothing_alive(*driver));
      continue;
    }
    EXPECT_EQ(nth, 3u);
    EXPECT_NE(ring.prefill_stream(), 0u);
    EXPECT_NE(ring.prefill_stream(), ring.stream());
    for (const SlotHandles& slot : ring.slots()) EXPECT_EQ(slot.stream, slot.slot < kSlots ? kComputeStream : kPrefillStream);
    EXPECT_TRUE(ring.destroy());
    EXPECT_TRUE(nothing_alive(*driver));
    break;
  }
}

// As above, of the calls that it makes for copies.
TEST(Ring, AFailedStartWithPlacesLeavesNothing) {
  using device::DriverCall;
  for (const DriverCall call : {DriverCall::create_stream, DriverCall::create_event, DriverCall::alloc_pinned}) {
    for (std::uint64_t nth = 1;; ++nth) {
      auto driver = device::make_host_driver();
      driver->inject({call, nth, ErrorCode::device_failed, false});
      Ring ring(*driver, model(), {64, 48}, kSlots, {2, 4, 64, true});
      if (ring.make()) {
        EXPECT_GT(nth, 2u);
        EXPECT_TRUE(ring.destroy());
        break;
      }
      EXPECT_TRUE(nothing_alive(*driver)) << static_cast<int>(call) << " call " << nth;
    }
  }
}

TEST(Ring, ReadsASlotAndChecksItsTag) {
  auto driver = device::make_host_driver();
  Ring ring(*driver, model(), {64, 48}, kSlots);
  ASSERT_TRUE(ring.make());
  const Ticket ticket{1, 9};
  auto* rows = reinterpret_cast<Readback*>(static_cast<std::uintptr_t>(ring.slots()[1].readback));
  auto* logits = reinterpret_cast<float*>(static_cast<std::uintptr_t>(ring.slots()[1].logits));
  rows[0] = {3, 4, CellStatus::ok, ticket.tag()};
  rows[1] = {5, 0, CellStatus::no_token, ticket.tag()};
  logits[10] = 2.5f;
  {
    const Shared<StepResult> result = ring.read({ticket, 1, 2, 2, {}});
    ASSERT_TRUE(result->ok());
    ASSERT_EQ(result->rows.size(), 2u);
    EXPECT_EQ(result->rows[0], rows[0]);
    EXPECT_EQ(result->rows[1], rows[1]);
    EXPECT_EQ(result->logits.data, logits);  // in place
    EXPECT_EQ(result->logits.n_rows, 2u);
    EXPECT_EQ(result->logits.vocab, 10u);
  }
  rows[1].tag ^= 1;
  const Shared<StepResult> wrong = ring.read({ticket, 1, 2, 0, {}});
  EXPECT_EQ(wrong->error.code, ErrorCode::device_failed);
  EXPECT_EQ(wrong->error.row, 1u);
  EXPECT_TRUE(wrong->rows.empty());
  EXPECT_EQ(ring.read({ticket, 7, 1, 0, {}})->error.code, ErrorCode::device_failed);
  EXPECT_EQ(ring.read({ticket, 1, 5, 0, {}})->error.code, ErrorCode::device_failed);
  const DeviceError error{DeviceError::Phase::forward, ErrorCode::bad_plan, 0, 0, "so"};
  EXPECT_EQ(ring.read({ticket, 1, 2, 0, error})->error.code, ErrorCode::bad_plan);
  EXPECT_TRUE(ring.destroy());
}

TEST(Ring, ReadsLogProbabilitiesOfADeviceThatSamples) {
  auto driver = device::make_host_driver();
  ModelInfo samples = model();
  samples.supports_device_sampling = true;
  Ring ring(*driver, samples, {64, 48}, kSlots);
  ASSERT_TRUE(ring.make());
  const Ticket ticket{1, 9};
  auto* rows = reinterpret_cast<Readback*>(static_cast<std::uintptr_t>(ring.slots()[1].readback));
  auto* logprobs = reinterpret_cast<ReadLogprobs*>(static_cast<std::uintptr_t>(ring.slots()[1].logprobs));
  rows[0] = rows[1] = {3, 4, CellStatus::ok, ticket.tag()};
  logprobs[0] = {-0.5f, 2, {4, 7}, {-0.5f, -1.5f}};
  logprobs[1] = {-2.0f, 77, {9}, {-0.25f}};  // a row without a token leaves anything
  {
    const Shared<StepResult> result = ring.read({ticket, 1, 2, 0, {}, 2});
    ASSERT_TRUE(result->ok());
    ASSERT_EQ(result->logprobs.size(), 2u);
    EXPECT_EQ(result->logprobs[0].chosen, -0.5f);
    ASSERT_EQ(result->logprobs[0].n_best, 2u);
    EXPECT_EQ(result->best[1].id, 7u);
    EXPECT_EQ(result->best[1].logprob, -1.5f);
    EXPECT_EQ(result->logprobs[1].best_begin, 2u);
    EXPECT_EQ(result->logprobs[1].n_best, ReadLogprobs::kMaxBest);
    EXPECT_EQ(result->best[2].id, 9u);
  }
  EXPECT_TRUE(ring.read({ticket, 1, 2, 0, {}})->logprobs.empty());
  EXPECT_EQ(ring.read({ticket, 1, 2, 0, {}, 99})->error.code, ErrorCode::device_failed);
  EXPECT_TRUE(ring.destroy());
}

// While the stream works, nothing under it is freed; afterwards all is.
TEST(Ring, ABusyStreamKeepsItsAreas) {
  auto driver = device::make_host_driver();
  Ring ring(*driver, model(), {64, 48}, kSlots);
  ASSERT_TRUE(ring.make());
  std::atomic<bool> go{false};
  ASSERT_TRUE(driver->enqueue_host_function({[](void* context) {
                                               while (!static_cast<std::atomic<bool>*>(context)->load()) std::this_thread::yield();
                                               return ErrorCode::none;
                                             },
                                             &go},
                                            ring.stream()));
  EXPECT_FALSE(ring.destroy());
  EXPECT_EQ(driver->usage().device_bytes, kSlots * 64u);
  go = true;
  while (!ring.destroy()) std::this_thread::yield();
  EXPECT_TRUE(nothing_alive(*driver));
}

}  // namespace
}  // namespace troupe::actors
