// The labels are what a person reads in a trace: exactly as the headers show them.
#include <gtest/gtest.h>

#include "tests/messages/samples.h"

namespace troupe::test {
namespace {

TEST(Label, Ids) {
  EXPECT_EQ(label(kRequest), "7#2");
  EXPECT_EQ(label(kTicket), "t1.42");
  EXPECT_EQ(label(kSeq), "s1.5");
  EXPECT_EQ(label(AdapterRef{3, 1}), "a3g1");
}

TEST(Label, Errors) {
  EXPECT_STREQ(name(ErrorCode::kv_exhausted), "kv_exhausted");
  for (int i = 0; i <= static_cast<int>(ErrorCode::adapter_gone); ++i) EXPECT_STRNE(name(static_cast<ErrorCode>(i)), "?") << i;
  EXPECT_STREQ(name(static_cast<ErrorCode>(200)), "?");
  EXPECT_EQ(label(Error{ErrorCode::bad_file, "..."}), "bad_file: ...");
  EXPECT_EQ(label(Error{ErrorCode::closed, ""}), "closed");
  EXPECT_EQ(label(kDeviceError), "launch/kv_exhausted{row=3, missing=2}");
  EXPECT_EQ(label(DeviceError{DeviceError::Phase::launch, ErrorCode::bad_plan, 4, 0, "x"}), "launch/bad_plan{row=4}");
  EXPECT_EQ(label(DeviceError{DeviceError::Phase::forward, ErrorCode::device_failed, 4, 0, "x"}), "forward/device_failed");
  EXPECT_EQ(label(DeviceError{DeviceError::Phase::effect, ErrorCode::not_quiescent, 0, 0, "x"}), "effect/not_quiescent");
}

TEST(Label, Facts) { EXPECT_EQ(label(facts()), "facts{free=10/64, fenced=2, in_flight=1}"); }

TEST(Label, Feeds) {
  EXPECT_EQ(label(FeedSource::host(12)), "host@12");
  EXPECT_EQ(label(FeedSource::feed({1, 41}, 3)), "feed(t1.41[3])");
  EXPECT_EQ(label(RowMask{}), "-");
  EXPECT_EQ(label(RowMask{2, 17}), "bar(2,17)");
  EXPECT_EQ(label(RowMask{2, RowMask::kNone}), "bar(2)");
  EXPECT_EQ(label(RowMask{RowMask::kNone, 17}), "bar(17)");
  EXPECT_EQ(label(Readback{5, 17, CellStatus::ok, 0}), "5>17 ok");
  EXPECT_STREQ(name(CellStatus::no_token), "no_token");
  EXPECT_STREQ(name(CellStatus::stale_feed), "stale_feed");
  EXPECT_STREQ(name(CellStatus::poisoned), "poisoned");
  EXPECT_STREQ(name(static_cast<CellStatus>(9)), "?");
}

TEST(Label, Effects) {
  EXPECT_EQ(label(Effect{Commit{kSeq, 1, 12}}), "Commit{s1.5, len=12}");
  EXPECT_EQ(label(Effect{Advance{kSeq, kTicket, 3}}), "Advance{s1.5, t1.42[3]}");
  EXPECT_EQ(label(Effect{Rollback{kSeq, 2}}), "Rollback{s1.5, e2}");
  EXPECT_EQ(label(Effect{ReleaseSeq{kSeq}}), "ReleaseSeq{s1.5}");
  EXPECT_EQ(label(Effect{ReadLogits{kTicket}}), "ReadLogits{t1.42}");
  EXPECT_EQ(label(Effect{ReserveKv{kSeq, 40}}), "ReserveKv{s1.5, positions=40}");
  EXPECT_EQ(label(Effect{CompactSlot{kSeq, 2}}), "CompactSlot{s1.5, to=2}");
  EXPECT_EQ(label(Effect{DetachSlot{kSeq}}), "DetachSlot{s1.5}");
  EXPECT_EQ(label(Effect{Quiesce{}}), "Quiesce{}");
  EXPECT_EQ(label(Effect{SaveSequenceState{kSeq}}), "SaveSequenceState{s1.5}");
  EXPECT_EQ(label(Effect{SsmSnapshotSave{kSeq}}), "SsmSnapshotSave{s1.5}");
  EXPECT_EQ(label(Effect{SsmSnapshotRestore{kSeq, 6}}), "SsmSnapshotRestore{s1.5, snapshot=6}");
  EXPECT_EQ(label(Effect{SsmCheckpoint{kSeq}}), "SsmCheckpoint{s1.5}");
  EXPECT_EQ(label(EffectOutcome{1, false}), "outcome{blocks=1}");
  EXPECT_EQ(label(EffectOutcome{0, true}), "outcome{blocks=0, fenced}");
}

TEST(Label, Rows) {
  EXPECT_EQ(label(fed_row()), "s1.5 e0 @12 feed(t1.41[3])");
  EXPECT_EQ(label(host_row(3, 1)), "s1.5 e0 @3 host@0");
  EXPECT_EQ(label(plan().rows[1]), "s1.5 e1 @0+2 host@0 bar(2,17) logits");
  Row chunk = host_row(16, 16);
  chunk.readback = RowReadback::none;
  EXPECT_EQ(label(chunk), "s1.5 e0 @16+16 host@0 none");
}

TEST(Label, Plans) {
  const auto of = [](std::vector<Row> rows) { return label(StepPlan{kTicket, {ReleaseSeq{}, ReleaseSeq{}}, std::move(rows), {}}); };
  Row chunk = host_row(16, 1);
  chunk.readback = RowReadback::none;
  EXPECT_EQ(of({host_row(0, 32), host_row(32, 32)}), "Prefill{n=2, tokens=64}");
  EXPECT_EQ(of({host_row(0, 1), chunk}), "Prefill{n=2, tokens=2}");
  EXPECT_EQ(of({host_row(3, 1), host_row(4, 1), host_row(5, 1), host_row(6, 1)}), "Decode{n=4}");
  EXPECT_EQ(of({fed_row(), fed_row(), host_row(9, 1), fed_row()}), "DecodeFed{n=4, fed=3}");
  EXPECT_EQ(of({fed_row(), fed_row(), fed_row(), host_row(9, 1), host_row(0, 64)}), "Mixed{n=5, fed=3, tokens=68}");
  EXPECT_EQ(of({host_row(9, 1), host_row(0, 2)}), "Mixed{n=2, fed=0, tokens=3}");
  EXPECT_EQ(of({}), "Effects{2}");
  EXPECT_EQ(label(launched()), "Step{t1.42, slot=0, n=2, fed=1}");
}

TEST(Label, RequestsAndTokens) {
  EXPECT_EQ(label(request()), "Request{7, prompt=3, max=64}");
  EXPECT_EQ(label(token_batch()), "Tokens{n=4, finished=1}");
  EXPECT_EQ(label(finish()), "Finish{7#2, stop, 64 tokens}");
  EXPECT_STREQ(name(FinishReason::length), "length");
  EXPECT_STREQ(name(FinishReason::cancelled), "cancelled");
  EXPECT_STREQ(name(FinishReason::deadline), "deadline");
  EXPECT_STREQ(name(FinishReason::error), "error");
  EXPECT_STREQ(name(static_cast<FinishReason>(9)), "?");
  EXPECT_STREQ(name(CancelOutcome::cancelled_waiting), "cancelled_waiting");
  EXPECT_STREQ(name(CancelOutcome::already_finished), "already_finished");
  EXPECT_STREQ(name(CancelOutcome::not_found), "not_found");
  EXPECT_STREQ(name(static_cast<CancelOutcome>(9)), "?");
}

TEST(Label, ResultsAndSamples) {
  EXPECT_EQ(label(result()), "Result{t1.42, n=2}");
  EXPECT_EQ(label(failed_result()), "Result{t1.42, readback/device_failed}");
  EXPECT_EQ(label(sample_batch()), "Sample{t1.42, n=2}");
  EXPECT_EQ(label(sampled_batch()), "Sampled{t1.42, n=1}");
}

TEST(Label, LoraAndModel) {
  EXPECT_EQ(label(LoraCommand{LoraCommand::Kind::load_into_slot, "pirate", ""}), "LoadIntoSlot{pirate}");
  EXPECT_EQ(label(LoraCommand{LoraCommand::Kind::unload, "pirate", ""}), "Unload{pirate}");
  EXPECT_EQ(label(LoraCommand{LoraCommand::Kind::rotate, "pirate", ""}), "Rotate{pirate}");
  EXPECT_EQ(label(LoraAck{"pirate", {1, 1}, 0}), "LoraAck{pirate, a1g1}");
  EXPECT_EQ(label(model_info()), "model{llama, vocab=49152, layers=30, context=8192, blocks=64, slots=8, depth=2}");
}

TEST(Label, MessagesOfTheEdges) {
  const auto shared = Shared<Request>::of(request());
  EXPECT_EQ(label(Submit{kCtx, shared, 0}), "Submit Request{7, prompt=3, max=64}");
  EXPECT_EQ(label(Submit{}), "Submit (empty)");
  EXPECT_EQ(label(SubmitReply{kCtx, kRequest, {}, 0}), "SubmitReply 7#2");
  EXPECT_EQ(label(SubmitReply{kCtx, {}, {ErrorCode::overloaded, "later"}, 0}), "SubmitReply overloaded: later");
  EXPECT_EQ(label(Admit{kCtx, kRequest, shared, 0}), "Admit 7#2 Request{7, prompt=3, max=64}");
  EXPECT_EQ(label(Cancel{kCtx, 7}), "Cancel 7");
  EXPECT_EQ(label(CancelRequest{kCtx, kRequest}), "CancelRequest 7#2");
  EXPECT_EQ(label(CancelReply{kCtx, kRequest, CancelOutcome::cancelled_running, 5}), "CancelReply 7#2 cancelled_running");
  EXPECT_EQ(label(Ended{kCtx, {{kRequest, 0}, {kRequest, 1}}}), "Ended{n=2}");
  EXPECT_EQ(label(Ended{kCtx, {{kRequest, 0}}, {0, 2}}), "Ended{n=1} r0.2");
  EXPECT_EQ(label(Drain{}), "Drain");
  EXPECT_EQ(label(Drained{}), "Drained");
  EXPECT_EQ(label(Halt{kCtx, {ErrorCode::closed, "stop"}}), "Halt closed: stop");
  EXPECT_EQ(label(Tick{}), "Tick");
  EXPECT_EQ(label(SetTimer{123}), "SetTimer @123");
  EXPECT_EQ(label(Deliver{kCtx, Shared<TokenBatch>::of(token_batch())}), "Deliver Tokens{n=4, finished=1}");
  EXPECT_EQ(label(Sample{kCtx, Shared<SampleBatch>::of(sample_batch())}), "Sample Sample{t1.42, n=2}");
  EXPECT_EQ(label(Sampled{kCtx, Shared<SampledBatch>::of(sampled_batch())}), "Sampled Sampled{t1.42, n=1}");
}

TEST(Label, MessagesOfTheRouter) {
  EXPECT_EQ(label(Open{kCtx, kRequest, 12, {3, 1}, {}, {}}), "Open 7#2 tokens=12 a3g1");
  EXPECT_EQ(label(Opened{kCtx, kRequest, kSeq, 2, 16, {}, {}, {}, false}), "Opened 7#2 s1.5 slot=2 cached=16");
  EXPECT_EQ(label(Opened{kCtx, kRequest, kSeq, 2, 16, {}, {}, {1, 4}, true}), "Opened 7#2 s1.5 slot=2 cached=16 restored");
  EXPECT_EQ(label(Open{kCtx, kRequest, 12, {}, {}, {}, {1, 4}, 11}), "Open 7#2 tokens=12 a0g0 restore=s1.4@11");
  EXPECT_EQ(label(Saved{kCtx, kRequest, kSeq, 40, {}, {}}), "Saved s1.5 positions=40");
  EXPECT_EQ(label(Saved{kCtx, kRequest, kSeq, 0, {DeviceError::Phase::effect, ErrorCode::overloaded, 0, 0, ""}, {}}),
            "Saved s1.5 effect/overloaded");
  EXPECT_EQ(label(Opened{kCtx, kRequest, {}, 0, 0, {DeviceError::Phase::launch, ErrorCode::slot_exhausted, 0, 0, ""}, {}, {}, false}),
            "Opened 7#2 launch/slot_exhausted");
  const StepPlan fed{kTicket, {}, {fed_row(), fed_row(), fed_row(), host_row(9, 1)}, {}};
  EXPECT_EQ(label(Launch{kCtx, Shared<StepPlan>::of(fed), true}), "Launch DecodeFed{n=4, fed=3}");
  EXPECT_EQ(label(Accepted{kCtx, kTicket, {}, facts()}), "Accepted t1.42 facts{free=10/64, fenced=2, in_flight=1}");
  EXPECT_EQ(label(Accepted{kCtx, kTicket, kDeviceError, {}}), "Accepted t1.42 launch/kv_exhausted{row=3, missing=2}");
  EXPECT_EQ(label(Await{kCtx, kTicket}), "Await t1.42");
  EXPECT_EQ(label(Settled{kCtx, Shared<StepResult>::of(result()), {}}), "Settled Result{t1.42, n=2}");
  EXPECT_EQ(label(Apply{kCtx, ReleaseSeq{kSeq}}), "Apply ReleaseSeq{s1.5}");
  EXPECT_EQ(label(Applied{kCtx, {1, false}, {}, {}}), "Applied outcome{blocks=1}");
  EXPECT_EQ(label(Applied{kCtx, {}, kDeviceError, {}}), "Applied launch/kv_exhausted{row=3, missing=2}");
  EXPECT_EQ(label(Lora{kCtx, {LoraCommand::Kind::load_into_slot, "pirate", ""}}), "Lora LoadIntoSlot{pirate} show=a0g0 hide=a0g0");
  EXPECT_EQ(label(LoraSubmit{kCtx, 3, {LoraCommand::Kind::list, "", ""}}), "LoraSubmit #3 List{}");
  EXPECT_EQ(label(LoraAnswer{kCtx, 3, {"pirate", {1, 1}, 0}, {}}), "LoraAnswer #3 LoraAck{pirate, a1g1}");
  EXPECT_EQ(label(LoadAdapter{kCtx, 3, 2, "p"}), "LoadAdapter #3 slot=2");
  EXPECT_EQ(label(AdapterLoaded{kCtx, 3, {}}), "AdapterLoaded #3 ok");
  EXPECT_EQ(label(LoraHold{kCtx, {1, 4}, 99}), "LoraHold a1g4 until @99");
  EXPECT_EQ(label(LoraResume{kCtx, {1, 4}, true}), "LoraResume a1g4 gone");
  EXPECT_EQ(label(ChangeTable{kCtx, {2, 5}, {1, 4}}), "ChangeTable show=a2g5 hide=a1g4");
  EXPECT_EQ(label(TableChanged{}), "TableChanged ok");
  EXPECT_EQ(label(LoraReply{kCtx, {"pirate", {1, 1}, 0}, {}}), "LoraReply LoraAck{pirate, a1g1}");
  EXPECT_EQ(label(Teardown{}), "Teardown");
  EXPECT_EQ(label(TornDown{kCtx, facts()}), "TornDown facts{free=10/64, fenced=2, in_flight=1}");
}

TEST(Label, MessagesOfTheDevice) {
  EXPECT_EQ(label(RingReady{kCtx, {{}, {}, {}}, {}}), "RingReady{n=3}");
  EXPECT_EQ(label(CopyBlocks{kCtx, {1, 9}, copy_handles(), true, {3, 4}}), "CopyBlocks t1.9 out place=1 n=2");
  EXPECT_EQ(label(CopyBlocks{kCtx, {1, 9}, copy_handles(), false, {3}}), "CopyBlocks t1.9 in place=1 n=1");
  EXPECT_EQ(label(CopyBlocks{kCtx, {1, 9}, copy_handles(), false, {3}, 8}), "CopyBlocks t1.9 in place=1 n=1 waits");
  EXPECT_EQ(label(CopyBlocks{kCtx, {1, 9}, copy_handles(), true, {}, 0, 5, 1, 2}), "CopyBlocks t1.9 out place=1 state=5 1+2");
  EXPECT_EQ(label(CopyDone{kCtx, {1, 9}, 1, {}}), "CopyDone t1.9 place=1 ok");
  EXPECT_EQ(label(RecordEvent{kCtx, {1, 9}, 1, 8}), "RecordEvent t1.9 place=1");
  EXPECT_EQ(label(EventRecorded{kCtx, {1, 9}, 1, {}}), "EventRecorded t1.9 place=1 ok");
  EXPECT_EQ(label(piece()), "s1.5 blocks 1+4/10");
  EXPECT_EQ(label(WriteState{kCtx, piece()}), "WriteState s1.5 blocks 1+4/10");
  EXPECT_EQ(label(ReadState{kCtx, piece()}), "ReadState s1.5 blocks 1+4/10");
  EXPECT_EQ(label(StateWritten{kCtx, 1, kSeq, {}}), "StateWritten s1.5 ok");
  EXPECT_EQ(label(StateRead{kCtx, 1, kSeq, {ErrorCode::bad_file, "x"}}), "StateRead s1.5 bad_file: x");
  EXPECT_EQ(label(DropState{kCtx, kSeq}), "DropState s1.5");
  EXPECT_EQ(label(Enqueue{kCtx, Shared<LaunchedStep>::of(launched())}), "Enqueue Step{t1.42, slot=0, n=2, fed=1}");
  EXPECT_EQ(label(Watch{kCtx, kTicket, 1, 4, 2, {}}), "Watch t1.42 slot=1 n=4 logits=2");
  EXPECT_EQ(label(EventDone{kCtx, kTicket, 1, {}}), "EventDone t1.42 slot=1 ok");
  EXPECT_EQ(label(EventDone{kCtx, kTicket, 1, {DeviceError::Phase::forward, ErrorCode::device_failed, 0, 0, ""}}),
            "EventDone t1.42 slot=1 forward/device_failed");
  EXPECT_EQ(label(Completed{kCtx, 1, Shared<StepResult>::of(result())}), "Completed slot=1 Result{t1.42, n=2}");
  EXPECT_EQ(label(ReadSlot{kTicket, 1, 4, 2, {}}), "ReadSlot t1.42 slot=1 n=4 logits=2");
}

TEST(Label, MessagesOfReplicas) {
  const auto shared = Shared<Request>::of(request());
  EXPECT_EQ(label(Placed{kRequest, 0}), "7#2");
  EXPECT_EQ(label(Placed{kRequest, 1}), "7#2/1");
  Admit moved{kCtx, kRequest, shared, 0};
  moved.replica = kReplica;
  moved.attempt = 1;
  moved.output = {4, 5};
  EXPECT_EQ(label(moved), "Admit 7#2 Request{7, prompt=3, max=64} attempt=1 output=2 r1.4");
  EXPECT_EQ(label(Drain{kCtx, {0, 1}}), "Drain");  // the one replica of a runtime without others is not worth the words
  EXPECT_EQ(label(Reclaim{kCtx, {{kRequest, 1}}}), "Reclaim{n=1}");
  EXPECT_EQ(label(ReclaimedRequest{kRequest, 1, {4, 5}, true}), "7#2/1 output=2 ended");
  EXPECT_EQ(label(Reclaimed{kCtx, {{}, {}}}), "Reclaimed{n=2}");
  EXPECT_EQ(label(Delivered{kCtx, {{kRequest, 1}}}), "Delivered{n=1}");
  EXPECT_EQ(label(EndRequests{kCtx, {finish()}}), "EndRequests{n=1}");
  EXPECT_EQ(label(ReplicaLost{kCtx, kReplica, {ErrorCode::device_lost, "gone"}}), "ReplicaLost r1.4 device_lost: gone");
  EXPECT_EQ(label(AskReport{kCtx, kReplica}), "AskReport r1.4");
  EXPECT_EQ(label(report()), "ReplicaReport r1.4 waiting=1 running=2 settled=6");
  EXPECT_EQ(label(StartReplica{kCtx, kReplica}), "StartReplica r1.4");
  EXPECT_EQ(label(StopReplica{kCtx, kReplica}), "StopReplica r1.4");
  EXPECT_EQ(label(ReplicaUp{kCtx, kReplica, "x"}), "ReplicaUp r1.4");
  EXPECT_EQ(label(ReplicaDown{kCtx, kReplica, {}}), "ReplicaDown r1.4 ok");
  EXPECT_EQ(label(DrainReplica{kCtx, 3, 1}), "DrainReplica r1");
  EXPECT_EQ(label(UndrainReplica{kCtx, 3, 1}), "UndrainReplica r1");
  EXPECT_EQ(label(ReplicaAnswer{kCtx, 3, 1, {}}), "ReplicaAnswer r1 ok");
  EXPECT_EQ(label(AskReplicas{}), "AskReplicas");
  EXPECT_EQ(label(replica_status()), "r1.4 host:1 draining live=3");
  EXPECT_EQ(label(ReplicaList{kCtx, 3, {replica_status()}, 2}), "ReplicaList{n=1, waiting=2}");
  EXPECT_EQ(label(LoraBound{kCtx, {kRequest, 1}, 3, kReplica}), "LoraBound 7#2/1 #3 r1.4");
  EXPECT_EQ(label(FetchAdapter{kCtx, 3, "pirate", kReplica}), "FetchAdapter #3 pirate r1.4");
  EXPECT_EQ(label(AdapterFetched{kCtx, 3, {}, {}, kReplica}), "AdapterFetched #3 ok r1.4");
  EXPECT_EQ(label(ReadAdapter{kCtx, 3, 2}), "ReadAdapter #3 slot=2");
  EXPECT_EQ(label(AdapterRead{kCtx, 3, {}, {}}), "AdapterRead #3 ok");
  EXPECT_EQ(label(lora_outcome()), "r1.4 timed_out: late rolled_back");
  EXPECT_EQ(label(*image()), "image{3 bytes}");
}

// A label is one line, whatever the message.
TEST(Label, EveryMessageHasOneLine) {
  int n = 0;
  for_each_sample([&](const auto& x) {
    if constexpr (requires {
                    { label(x) } -> std::same_as<std::string>;
                  }) {
      EXPECT_FALSE(label(x).empty());
      EXPECT_EQ(label(x).find('\n'), std::string::npos);
      ++n;
    }
  });
  EXPECT_GT(n, 60);
}

}  // namespace
}  // namespace troupe::test
