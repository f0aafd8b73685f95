// One value of every message type, no field at its default where that can be told.
#pragma once

#include <string>

#include "messages/protocol.h"

namespace troupe::test {

inline const TraceCtx kCtx{11, 7};
inline const RequestId kRequest{7, 2};
inline const SeqId kSeq{1, 5};
inline const ReplicaRef kReplica{1, 4};
inline const Ticket kTicket{1, 42};
inline const DeviceError kDeviceError{DeviceError::Phase::launch, ErrorCode::kv_exhausted, 3, 2, "two blocks are missing"};

inline DeviceFacts facts() {
  return {.total_blocks = 64,
          .free_blocks = 10,
          .used_blocks = 50,
          .cached_blocks = 2,
          .fenced_blocks = 2,
          .total_slots = 8,
          .free_slots = 3,
          .ring_slots = 3,
          .free_ring_slots = 2,
          .in_flight = 1,
          .has_ssm = true,
          .ssm_total = 5,
          .ssm_used = 4,
          .ssm_snapshots = 2,
          .ssm_sequences = 1};
}
inline Request request() {
  Request r;
  r.client = 7;
  r.prompt = {1, 2, 3};
  r.sampling = {.temperature = 0.5f,
                .top_k = 40,
                .top_p = 0.9f,
                .min_p = 0.1f,
                .repetition_penalty = 1.1f,
                .presence_penalty = 0.2f,
                .frequency_penalty = 0.3f,
                .logit_bias = {{9, -1.5f}},
                .seed = 99,
                .logprobs = 5};
  r.stop = {.max_tokens = 64, .min_tokens = 3, .stop = {"END", "\n\n"}, .stop_token_ids = {4, 5}, .ignore_eos = true};
  r.think = Think{8, 9, 10};
  r.deadline = TimeNs{5'000'000'000};
  r.adapter = "pirate";
  return r;
}
inline Row fed_row() {
  return {.seq = kSeq,
          .epoch = 0,
          .position = 12,
          .n_tokens = 1,
          .source = FeedSource::feed({1, 41}, 3),
          .mask = {},
          .adapter = {},
          .readback = RowReadback::argmax};
}
inline Row host_row(std::uint32_t position, std::uint32_t n_tokens) {
  return {.seq = kSeq,
          .epoch = 0,
          .position = position,
          .n_tokens = n_tokens,
          .source = FeedSource::host(0),
          .mask = {},
          .adapter = {},
          .readback = RowReadback::argmax};
}
inline StepPlan plan() {
  Row masked = host_row(0, 2);
  masked.epoch = 1;
  masked.mask = {2, 17};
  masked.adapter = {3, 1};
  masked.readback = RowReadback::logits;
  return {.ticket = kTicket,
          .effects = {Commit{kSeq, 1, 12}, ReleaseSeq{{1, 6}}},
          .rows = {fed_row(), masked},
          .tokens = {5, 6},
          .samples = {},
          .biases = {}};
}
inline LaunchedStep launched() {
  DeviceRow fed;
  fed.slot = 1;
  fed.position = 12;
  fed.source = FeedSource::Kind::feed;
  fed.index = 3;
  fed.feed_cells = 2;
  fed.feed_tag = 77;
  fed.mask = {2, 17};
  fed.adapter_slot = 3;
  fed.logits_row = 1;
  DeviceRow chunk;
  chunk.n_tokens = 2;
  chunk.wants_token = false;
  return {.ticket = kTicket,
          .slot = {.slot = 0, .event = 4, .readback = 5, .logits = 6, .cells = 7, .upload = 8},
          .n_tokens = 3,
          .n_logits = 1,
          .deltas = {{1, 2, 3}},
          .rows = {fed, chunk},
          .tokens = {5, 6},
          .samples = {},
          .biases = {}};
}
inline CopyHandles copy_handles() {
  return {.place = 1, .event = 4, .staging = 5, .blocks = 6, .block_bytes = 7, .order = 8, .state_parts = 9};
}
inline StatePiece piece() {
  return {.place = 1,
          .seq = kSeq,
          .positions = 40,
          .first_block = 2,
          .n_blocks = 7,
          .n_parts = 3,
          .block_bytes = 8,
          .begin = 1,
          .count = 4,
          .data = 9};
}
inline StepResult result() {
  return {.ticket = kTicket,
          .error = {},
          .rows = {{5, 17, CellStatus::ok, 77}, {6, 0, CellStatus::poisoned, 77}},
          .logits = {nullptr, 2, 100},
          .logprobs = {},
          .best = {}};
}
inline StepResult failed_result() {
  return {.ticket = kTicket,
          .error = {DeviceError::Phase::readback, ErrorCode::device_failed, 0, 0, "gone"},
          .rows = {},
          .logits = {},
          .logprobs = {},
          .best = {}};
}
inline SampleBatch sample_batch() {
  return {.ticket = kTicket,
          .logits = {nullptr, 1, 100},
          .rows = {{.request = kRequest,
                    .params = Shared<Request>::of(request()),
                    .seed = 1,
                    .logits_row = 2,
                    .output_index = 3,
                    .new_begin = 4,
                    .new_size = 5,
                    .bar_begin = 6,
                    .bar_size = 7,
                    .fresh = true},
                   {}},
          .tokens = {1, 2},
          .closed = {{8, 1}}};
}
inline SampledBatch sampled_batch() {
  return {.ticket = kTicket, .rows = {{kRequest, 4, CellStatus::no_token, -0.5f, 1, 2}}, .best = {{4, -0.5f}, {5, -1.0f}}};
}
inline Finish finish() {
  return {.request = kRequest,
          .reason = FinishReason::stop,
          .usage = {12, 64, 3},
          .seed = 99,
          .text_begin = 1,
          .text_size = 2,
          .error = {ErrorCode::closed, "bye"},
          .attempt = 1,
          .other_arithmetic = true};
}
inline TokenBatch token_batch() {
  TokenEvent event{.request = kRequest,
                   .attempt = 1,
                   .index = 2,
                   .id = 3,
                   .text_begin = 4,
                   .text_size = 5,
                   .best_begin = 6,
                   .best_size = 7,
                   .logprob = -0.25f};
  return {.events = {event, event, event, event}, .finishes = {finish()}, .text = "hello", .best = {{3, -0.25f}}};
}
inline ModelInfo model_info() {
  TokenTable table{.offsets = {0, 1, 3}, .bytes = "abc", .special = {0, 1}};
  return {.name = "Tiny",
          .architecture = "llama",
          .arithmetic_id = "host/exact",
          .vocab_size = 49152,
          .n_layers = 30,
          .context_length = 8192,
          .block_size = 16,
          .kv_blocks = 64,
          .n_slots = 8,
          .max_depth = 2,
          .max_rows = 32,
          .max_step_tokens = 512,
          .max_logits_rows = 8,
          .supports_device_token_feed = true,
          .has_ssm_layers = true,
          .ssm_states = 6,
          .eos_ids = {2, 3},
          .tokens = Shared<TokenTable>::of(std::move(table)),
          .max_loras = 4,
          .max_lora_rank = 16};
}

inline ReplicaReport report() { return {kCtx, kReplica, facts(), 1, 2, 3, 4, 5, 6, 7, 8, 9}; }
inline ReplicaStatus replica_status() {
  return {kReplica, ReplicaState::draining, "host:1", "host/exact", 3, 90, report(), {"pirate"}, 2, {ErrorCode::device_lost, "gone"}};
}
inline LoraOutcome lora_outcome() {
  return {kReplica, "host:1", {ErrorCode::timed_out, "late"}, {1, 1}, 5, true, {{"x", 1, {1, 1}, 2, true, true}}};
}
inline Shared<AdapterImage> image() { return Shared<AdapterImage>::of(AdapterImage{{1, 2, 3}}); }

// Calls f(value) with a sample of each type.
template <class F>
void for_each_sample(F&& f) {
  f(kCtx), f(kRequest), f(kSeq), f(kTicket), f(AdapterRef{3, 1});
  f(Error{ErrorCode::bad_file, "short"}), f(kDeviceError), f(facts());
  f(FeedSource::feed(kTicket, 3)), f(FeedSource::host(12)), f(RowMask{2, 17}), f(Readback{5, 17, CellStatus::stale_feed, 9});
  f(Commit{kSeq, 1, 12}), f(Advance{kSeq, kTicket, 3}), f(Rollback{kSeq, 2}), f(ReleaseSeq{kSeq}), f(ReadLogits{kTicket});
  f(ReserveKv{kSeq, 40}), f(CompactSlot{kSeq, 2}), f(DetachSlot{kSeq}), f(Quiesce{}), f(SaveSequenceState{kSeq}), f(SsmSnapshotSave{kSeq});
  f(SsmSnapshotRestore{kSeq, 6}), f(SsmCheckpoint{kSeq}), f(EffectOutcome{1, true});
  f(LoraCommand{LoraCommand::Kind::rotate, "pirate", "adapters/pirate"}), f(LoraAck{"pirate", {1, 1}, 500}), f(*image()), f(lora_outcome());
  f(LoraEntry{"x", 1, {1, 1}, 2, true, true});
  f(*model_info().tokens), f(model_info());
  f(plan().rows[1]), f(plan()), f(TableDelta{1, 2, 3}), f(launched().rows[0]), f(launched().slot), f(launched());
  f(TokenBias{9, -1.5f}), f(request().sampling), f(request().stop), f(*request().think), f(request());
  f(Usage{12, 64, 3}), f(TokenLogprob{3, -0.25f}), f(token_batch().events[0]), f(finish()), f(token_batch());
  f(result().logits), f(result()), f(failed_result());
  f(sample_batch().rows[0]), f(sample_batch()), f(sampled_batch().rows[0]), f(sampled_batch());

  const auto shared_request = Shared<Request>::of(request());
  f(Submit{kCtx, shared_request, 3});
  f(SubmitReply{kCtx, kRequest, {ErrorCode::overloaded, "later"}, 1000});
  f(Admit{kCtx, kRequest, shared_request, 3, {3, 1}, {ErrorCode::unknown_adapter, "none"}, true, 9, kReplica, 2, {4, 5}, true, 6});
  f(Cancel{kCtx, 7}), f(CancelRequest{kCtx, kRequest, kReplica});
  f(CancelReply{kCtx, kRequest, CancelOutcome::cancelled_running, 5, kReplica});
  f(Placed{kRequest, 1}), f(Ended{kCtx, {{kRequest, 1}, {{8, 1}, 0}}, kReplica}), f(Drain{kCtx, kReplica}), f(Drained{kCtx, kReplica}),
      f(Halt{kCtx, {ErrorCode::closed, "stop"}}), f(Tick{kCtx}), f(SetTimer{123});
  f(kReplica), f(Reclaim{kCtx, {{kRequest, 1}}}), f(ReclaimedRequest{kRequest, 1, {4, 5}, true});
  f(Delivered{kCtx, {{kRequest, 1}}}), f(Reclaimed{kCtx, {{kRequest, 1, {4, 5}, true}}}), f(EndRequests{kCtx, {finish()}, "held"});
  f(ReplicaLost{kCtx, kReplica, {ErrorCode::device_lost, "gone"}}), f(AskReport{kCtx, kReplica}), f(report());
  f(StartReplica{kCtx, kReplica}), f(StopReplica{kCtx, kReplica}), f(ReplicaUp{kCtx, kReplica, "host/exact"});
  f(ReplicaDown{kCtx, kReplica, {ErrorCode::io_failed, "busy"}}), f(DrainReplica{kCtx, 3, 1}), f(UndrainReplica{kCtx, 3, 1});
  f(ReplicaAnswer{kCtx, 3, 1, {ErrorCode::not_found, "none"}}), f(AskReplicas{kCtx, 3}), f(replica_status());
  f(ReplicaList{kCtx, 3, {replica_status()}, 2});
  f(Open{kCtx, kRequest, 12, {3, 1}, shared_request, {4, 5}, {1, 4}, 11}), f(Open{kCtx, kRequest, 12, {3, 1}, {}, {}, {}, 0});
  f(Opened{kCtx, kRequest, kSeq, 2, 16, kDeviceError, facts(), {1, 4}, true, 16, 32});
  f(Saved{kCtx, kRequest, kSeq, 40, kDeviceError, facts()});
  f(Launch{kCtx, Shared<StepPlan>::of(plan()), false}), f(Launch{kCtx, {}, true});
  f(Accepted{kCtx, kTicket, kDeviceError, facts()}), f(Await{kCtx, kTicket});
  f(Settled{kCtx, Shared<StepResult>::of(result()), facts()});
  f(Apply{kCtx, ReserveKv{kSeq, 40}}), f(Applied{kCtx, {1, true}, kDeviceError, facts()});
  f(Lora{kCtx, {LoraCommand::Kind::load_into_slot, "pirate", "p"}, {2, 5}, {1, 4}, true});
  f(LoraSubmit{kCtx,
               3,
               {LoraCommand::Kind::promote, "pirate", "", 2, "peer", "arr", 5, LoraCommand::AtBound::preempt, "host:1", true},
               kReplica,
               image()});
  f(LoraAnswer{kCtx,
               3,
               {"pirate", {1, 1}, 5, 2, "caps", 3, 6, {{"x", 1, {1, 1}, 2, true, true}}, {lora_outcome()}},
               {ErrorCode::timed_out, "later"},
               kReplica});
  f(LoadAdapter{kCtx, 3, 2, "p", image()}), f(ReadAdapter{kCtx, 3, 2}), f(AdapterRead{kCtx, 3, image(), {ErrorCode::io_failed, "gone"}});
  f(LoraBound{kCtx, {kRequest, 1}, 3, kReplica}), f(FetchAdapter{kCtx, 3, "pirate", kReplica});
  f(AdapterFetched{kCtx, 3, image(), {ErrorCode::unknown_adapter, "none"}, kReplica});
  f(AdapterLoaded{kCtx, 3, {ErrorCode::bad_file, "short"}}), f(LoraHold{kCtx, {1, 4}, 99});
  f(LoraResume{kCtx, {1, 4}, true}), f(ChangeTable{kCtx, {2, 5}, {1, 4}}), f(TableChanged{kCtx, {ErrorCode::not_found, "none"}});
  f(LoraReply{kCtx, {"pirate", {1, 1}, 5}, kDeviceError});
  f(Teardown{kCtx}), f(TornDown{kCtx, facts()});
  f(copy_handles()), f(RingReady{kCtx, {launched().slot, {}}, {copy_handles()}}), f(Enqueue{kCtx, Shared<LaunchedStep>::of(launched())});
  f(Watch{kCtx, kTicket, 1, 4, 2, kDeviceError}), f(EventDone{kCtx, kTicket, 1, kDeviceError});
  f(Completed{kCtx, 1, Shared<StepResult>::of(failed_result())}), f(ReadSlot{kTicket, 1, 4, 2, kDeviceError});
  f(RecordEvent{kCtx, kTicket, 1, 8}), f(EventRecorded{kCtx, kTicket, 1, {ErrorCode::device_failed, "no"}});
  f(CopyBlocks{kCtx, kTicket, copy_handles(), true, {3, 4}, 8}), f(CopyBlocks{kCtx, kTicket, copy_handles(), true, {}, 0, 5, 1, 2});
  f(CopyDone{kCtx, kTicket, 1, kDeviceError});
  f(piece()), f(WriteState{kCtx, piece()}), f(StateWritten{kCtx, 1, kSeq, {ErrorCode::io_failed, "full"}});
  f(ReadState{kCtx, piece()}), f(StateRead{kCtx, 1, kSeq, {ErrorCode::bad_file, "short"}}), f(DropState{kCtx, kSeq});
  f(Sample{kCtx, Shared<SampleBatch>::of(sample_batch())}), f(Sampled{kCtx, Shared<SampledBatch>::of(sampled_batch())});
  f(Deliver{kCtx, Shared<TokenBatch>::of(token_batch())});
}

}  // namespace troupe::test
