// Every message of the protocol survives CAF's serializers, and every truncation of it is refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "actors/wire.h"

namespace troupe::actors {
namespace {

const TraceCtx kCtx{77, 66};
const RequestId kId{7, 2};
const ReplicaRef kReplica{1, 4};
const Ticket kTicket{1, 42};
const DeviceError kDeviceError{DeviceError::Phase::readback, ErrorCode::kv_exhausted, 3, 2, "two blocks too few"};
const Error kError{ErrorCode::overloaded, "try again"};
const DeviceFacts kFacts{64, 10, 50, 2, 2, 8, 7, 3, 2, 1, true, 1, 4};

Request full_request() {
  Request r;
  r.client = 7;
  r.prompt = {1, 2, 3};
  r.sampling.temperature = 0.5f;
  r.sampling.logit_bias = {{4, 1.5f}};
  r.sampling.seed = 99;
  r.sampling.logprobs = 3;
  r.stop.stop = {"end", "stop"};
  r.stop.stop_token_ids = {9};
  r.think = Think{5, 6, 7};
  r.deadline = TimeNs{1'000'000};
  r.adapter = "pirate";
  return r;
}

// One of each, with every field that has a length filled, a line a message.
// clang-format off
template <class M> M sample();
template <> Submit sample() { return {kCtx, Shared<Request>::of(full_request()), 5}; }
template <> SubmitReply sample() { return {kCtx, kId, kError, 100}; }
template <> Admit sample() { return {kCtx, kId, Shared<Request>::of(full_request()), 8, {1, 2}, kError, true, 9, kReplica, 2, {3, 4}, true, 7}; }
template <> Cancel sample() { return {kCtx, 7}; }
template <> CancelRequest sample() { return {kCtx, kId, kReplica}; }
template <> CancelReply sample() { return {kCtx, kId, CancelOutcome::cancelled_running, 12, kReplica}; }
template <> Ended sample() { return {kCtx, {{kId, 1}, {{8, 3}, 2}}, kReplica}; }
template <> Drain sample() { return {kCtx, kReplica}; }
template <> Drained sample() { return {kCtx, kReplica}; }
template <> Halt sample() { return {kCtx, kError}; }
template <> Reclaim sample() { return {kCtx, {{kId, 1}}}; }
template <> Reclaimed sample() { return {kCtx, {{kId, 1, {3, 4}, true}}}; }
template <> Delivered sample() { return {kCtx, {{kId, 1}}}; }
template <> EndRequests sample() {
  Finish f;
  f.request = kId;
  f.error = kError;
  f.attempt = 2;
  f.other_arithmetic = true;
  return {kCtx, {f}, "held"};
}
template <> ReplicaLost sample() { return {kCtx, kReplica, kError}; }
template <> AskReport sample() { return {kCtx, kReplica}; }
template <> ReplicaReport sample() { return {kCtx, kReplica, kFacts, 1, 2, 3, 4, 5, 6, 7, 8, 9}; }
template <> StartReplica sample() { return {kCtx, kReplica}; }
template <> StopReplica sample() { return {kCtx, kReplica}; }
template <> ReplicaUp sample() { return {kCtx, kReplica, "host/exact"}; }
template <> ReplicaDown sample() { return {kCtx, kReplica, kError}; }
template <> DrainReplica sample() { return {kCtx, 3, 1}; }
template <> UndrainReplica sample() { return {kCtx, 3, 1}; }
template <> ReplicaAnswer sample() { return {kCtx, 3, 1, kError}; }
template <> AskReplicas sample() { return {kCtx, 3}; }
template <> ReplicaList sample() {
  return {kCtx, 3, {{kReplica, ReplicaState::up, "host:0", "host/exact", 4, 5, sample<ReplicaReport>(), {"pirate"}, 6, kError}}, 7};
}
template <> Tick sample() { return {kCtx}; }
template <> Open sample() { return {kCtx, kId, 12, {1, 1}}; }
template <> Opened sample() { return {kCtx, kId, {1, 5}, 3, 16, kDeviceError, kFacts, {1, 4}, true}; }
template <> Saved sample() { return {kCtx, kId, {1, 5}, 40, kDeviceError, kFacts}; }
template <> Launch sample() {
  StepPlan p;
  p.ticket = kTicket;
  p.effects = {Commit{{1, 5}, 1, 12}, Advance{{1, 5}, kTicket, 2}, Rollback{{1, 5}, 2}, ReleaseSeq{{1, 6}}, ReadLogits{kTicket},
               ReserveKv{{1, 5}, 32}, CompactSlot{{1, 5}, 2}, DetachSlot{{1, 5}}, Quiesce{}, SaveSequenceState{{1, 5}}, SsmSnapshotSave{{1, 5}},
               SsmSnapshotRestore{{1, 5}, 3}, SsmCheckpoint{{1, 5}}};
  p.rows.resize(2);
  p.rows[1].source = FeedSource::feed({1, 41}, 3);
  p.rows[1].mask = {2, 17};
  p.rows[1].readback = RowReadback::logits;
  p.tokens = {5, 6};
  return {kCtx, Shared<StepPlan>::of(p), false};
}
template <> Accepted sample() { return {kCtx, kTicket, kDeviceError, kFacts}; }
template <> Await sample() { return {kCtx, kTicket}; }
template <> Settled sample() {
  StepResult r;
  r.ticket = kTicket;
  r.error = kDeviceError;
  r.rows = {{5, 17, CellStatus::poisoned, 3}};
  r.logits = {nullptr, 2, 256};
  return {kCtx, Shared<StepResult>::of(r), kFacts};
}
template <> Apply sample() { return {kCtx, Effect{Advance{{1, 5}, kTicket, 2}}}; }
template <> Applied sample() { return {kCtx, {2, true}, kDeviceError, kFacts}; }
template <> LoraSubmit sample() { return {kCtx, 3, {LoraCommand::Kind::promote, "pirate", "p", 2, "peer", "arr", 5, LoraCommand::AtBound::preempt, "host:0", true}, kReplica, Shared<AdapterImage>::of(AdapterImage{{1, 2}})}; }
template <> LoraAnswer sample() { return {kCtx, 3, {"pirate", {1, 1}, 5, 2, "caps", 3, 6, {{"x", 1, {1, 1}, 2, true, true}}, {{kReplica, "host:0", kError, {1, 1}, 5, true, {}}}}, kError, kReplica}; }
template <> LoadAdapter sample() { return {kCtx, 3, 2, "p", Shared<AdapterImage>::of(AdapterImage{{1, 2}})}; }
template <> LoraBound sample() { return {kCtx, {kId, 1}, 3, kReplica}; }
template <> FetchAdapter sample() { return {kCtx, 3, "pirate", kReplica}; }
template <> AdapterFetched sample() { return {kCtx, 3, Shared<AdapterImage>::of(AdapterImage{{1, 2}}), kError, kReplica}; }
template <> ReadAdapter sample() { return {kCtx, 3, 2}; }
template <> AdapterRead sample() { return {kCtx, 3, Shared<AdapterImage>::of(AdapterImage{{1, 2}}), kError}; }
template <> AdapterLoaded sample() { return {kCtx, 3, kError}; }
template <> LoraHold sample() { return {kCtx, {1, 4}, 99}; }
template <> LoraResume sample() { return {kCtx, {1, 4}, true}; }
template <> ChangeTable sample() { return {kCtx, {2, 5}, {1, 4}}; }
template <> TableChanged sample() { return {kCtx, kError}; }
template <> Lora sample() { return {kCtx, {LoraCommand::Kind::rotate, "pirate", "somewhere"}, {2, 5}, {1, 4}, true}; }
template <> LoraReply sample() { return {kCtx, {"pirate", {1, 1}, 30}, kDeviceError}; }
template <> Teardown sample() { return {kCtx}; }
template <> TornDown sample() { return {kCtx, kFacts}; }
template <> RingReady sample() { return {kCtx, {{0, 1, 2, 3, 4, 5}, {1, 6, 7, 8, 9, 10}}, {{0, 1, 2, 3, 4, 5}}}; }
template <> Enqueue sample() {
  LaunchedStep s;
  s.ticket = kTicket;
  s.slot = {1, 6, 7, 8, 9, 10};
  s.n_tokens = 2;
  s.deltas = {{1, 0, 33}};
  s.rows.resize(2);
  s.tokens = {5, 6};
  return {kCtx, Shared<LaunchedStep>::of(s)};
}
template <> Watch sample() { return {kCtx, kTicket, 1, 2, 1, kDeviceError}; }
template <> EventDone sample() { return {kCtx, kTicket, 1, kDeviceError}; }
template <> Completed sample() { return {kCtx, 1, sample<Settled>().result}; }
template <> RecordEvent sample() { return {kCtx, kTicket, 1, 6}; }
template <> EventRecorded sample() { return {kCtx, kTicket, 1, kError}; }
template <> CopyBlocks sample() { return {kCtx, kTicket, {1, 2, 3, 4, 5, 6, 7}, true, {7, 8, 9}, 6, 10, 11, 12}; }
template <> CopyDone sample() { return {kCtx, kTicket, 1, kDeviceError}; }
template <> WriteState sample() { return {kCtx, {1, {1, 5}, 40, 2, 7, 3, 64, 1, 4, 99}}; }
template <> StateWritten sample() { return {kCtx, 1, {1, 5}, kError}; }
template <> ReadState sample() { return {kCtx, {1, {1, 5}, 40, 2, 7, 3, 64, 1, 4, 99}}; }
template <> StateRead sample() { return {kCtx, 1, {1, 5}, kError}; }
template <> DropState sample() { return {kCtx, {1, 5}}; }
template <> Sample sample() {
  SampleBatch b;
  b.ticket = kTicket;
  b.logits = {nullptr, 1, 256};
  b.rows.push_back({kId, Shared<Request>::of(full_request()), 4, 0, 1, 0, 1, 1, 1, true});
  b.tokens = {3, 4};
  b.closed = {{9, 9}};
  return {kCtx, Shared<SampleBatch>::of(b)};
}
template <> Sampled sample() {
  SampledBatch b;
  b.ticket = kTicket;
  b.rows = {{kId, 4, CellStatus::ok, -0.5f, 0, 1}};
  b.best = {{4, -0.5f}};
  return {kCtx, Shared<SampledBatch>::of(b)};
}
template <> Deliver sample() {
  TokenBatch b;
  b.events.push_back({kId, 1, 2, 3, 0, 2, 0, 1, -1.0f});
  b.finishes.push_back({kId, FinishReason::length, {1, 2, 3}, 9, 2, 1, kError});
  b.text = "abc";
  b.best = {{4, -0.5f}};
  return {kCtx, Shared<TokenBatch>::of(b)};
}
// clang-format on

template <class M>
std::vector<char> save(M& m, caf::error& error) {
  std::vector<char> bytes;
  caf::binary_serializer sink(nullptr, bytes);
  error = sink(m);
  return bytes;
}

template <class M>
void check(const char* name) {
  SCOPED_TRACE(name);
  M original = sample<M>();
  caf::error error;
  const std::vector<char> bytes = save(original, error);
  ASSERT_FALSE(error);
  M loaded{};
  {
    caf::binary_deserializer source(nullptr, bytes);
    ASSERT_FALSE(source(loaded));
    EXPECT_EQ(source.remaining(), 0u);
  }
  EXPECT_EQ(save(loaded, error), bytes);
  EXPECT_EQ(label(loaded), label(original));
  EXPECT_EQ(loaded.ctx.seq, 77u);
  EXPECT_EQ(loaded.ctx.cause, 66u);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    M target{};
    caf::binary_deserializer source(nullptr, bytes.data(), n);
    EXPECT_TRUE(source(target)) << "accepted " << n << " of " << bytes.size() << " bytes";
  }
}

TEST(Roundtrip, EveryMessageAndEveryTruncation) {
  int n = 0;
  for_each_message([&]<class M>(const char* name) {
    check<M>(name);
    ++n;
  });
  EXPECT_EQ(n, 70);
}

// A tag that names no alternative is no value, whatever follows it.
TEST(Roundtrip, UnknownEffectIsRefused) {
  Apply apply = sample<Apply>();
  caf::error error;
  std::vector<char> bytes = save(apply, error);
  ASSERT_FALSE(error);
  bytes[2 * sizeof(std::uint64_t)] = static_cast<char>(std::variant_size_v<Effect>);
  Apply loaded;
  caf::binary_deserializer source(nullptr, bytes);
  EXPECT_TRUE(source(loaded));
}

// A whole caf::message needs the registration; ControlConfig makes it.
TEST(Roundtrip, WholeMessagesAreRegistered) {
  ControlConfig config({});
  caf::actor_system system(config);
  for_each_message([&]<class M>(const char* name) {
    SCOPED_TRACE(name);
    caf::message message = caf::make_message(sample<M>());
    std::vector<char> bytes;
    caf::binary_serializer sink(system, bytes);
    ASSERT_FALSE(sink(message));
    caf::message loaded;
    caf::binary_deserializer source(system, bytes);
    ASSERT_FALSE(loaded.load(source));
    ASSERT_TRUE(loaded.match_elements<M>());
    EXPECT_EQ(label(loaded.get_as<M>(0)), label(sample<M>()));
  });
}

}  // namespace
}  // namespace troupe::actors
