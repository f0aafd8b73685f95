// The scheduler core's state. Included by the scheduler's .cc files only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/scheduler/core.h"
#include "actors/scheduler/text_stream.h"

namespace troupe::actors {

inline constexpr std::uint32_t kMaxDepth = 8;

// One row of a request in a step in flight, of its current epoch.
struct InFlightRow {
  Ticket ticket;
  std::uint32_t row = 0;
  std::uint32_t position = 0;
  std::uint32_t n_tokens = 0;
  std::uint32_t output_index = 0;  // of the token that it produces, if it produces one
  bool produces = false;
  bool fed = false;
  RowReadback chosen_by = RowReadback::none;
  bool closed_thinking = false;  // as the row was launched
  bool brought_history = false;
  RowMask mask;
};

// A request from admission to its terminal event. The tokens of its sequence are prompt ++ output; a row covers
// positions [launched, launched + n): below the number of known tokens they come from the host, and the one position
// after the last known token is fed from the row in flight that produces it. So a prompt's chunk, a decode row, a redo
// and a recompute after a preemption are the same thing.
struct alignas(64) Live {
  enum class Phase : std::uint8_t { unused, waiting, opening, running };
  // What every row of every step asks for lies together at the front; of the request, copies.
  Phase phase = Phase::unused;
  bool samples = false;  // SamplingParams::needs_logits()
  bool closed_thinking = false;
  bool kv_blocked = false;    // blocks did not suffice for its next row: it sits out until something settles
  bool stops_at_ids = false;  // some ids end it, or its thinking
  bool stops_at_strings = false;
  bool ignore_eos = false;
  bool stop_pending = false;  // SchedulerFault::keep_overrun only
  bool history_sent = false;  // the device has the ids of its first `opened_len` positions, or does not need them
  bool penalizes = false;     // SamplingParams::penalizes()
  std::uint32_t prompt_len = 0;
  std::uint32_t min_tokens = 0;
  std::uint32_t max_new = 0;  // tokens, by max_tokens and the context
  std::uint32_t epoch = 0;
  std::uint32_t launched = 0;  // positions, with the steps in flight
  std::uint32_t settled = 0;   // positions, without them
  std::uint32_t n_rows = 0;
  std::uint32_t stream = kComputeStream;  // of its last row, disowned or not
  std::uint64_t last_step = 0;            // likewise; 0: its sequence has had none
  std::uint32_t failures = 0;             // in a row
  Token newest = 0;                       // output.back()
  Ticket sampling;                        // its logits of this step are with the sampler; incarnation 0 = none
  SeqId seq;
  std::vector<Token> output;
  RequestId id;
  AdapterRef adapter;                       // bound for its whole life
  std::array<InFlightRow, kMaxDepth> rows;  // of the current epoch, oldest first
  TextStream text;
  std::uint32_t text_due = 0;  // its last staged event, counted from 1, while its text is not made
  Shared<Request> request;

  std::uint64_t seed = 0;
  std::uint64_t admitted = 0;  // order of arrival
  std::uint32_t attempt = 0;   // as in Admit
  bool other_arithmetic = false;
  TimeNs deadline = 0;  // absolute; 0 = none
  std::uint32_t sampler_seen = 0;
  bool sampler_fresh = true;                    // the sampler keeps nothing of it
  bool sampler_knows = false;                   // and has to be told when it ends
  bool preempted = false;                       // at least once
  bool saving = false;                          // the router has not answered yet: it is not opened before
  std::uint32_t cached_len = 0;                 // of the prompt, at its first opening
  std::size_t immune_until = 0;                 // output size: preempted before it only if nobody else can be
  SeqId saved;                                  // waiting or opening: its state was saved as this sequence; incarnation 0 = none
  std::uint32_t saved_len = 0;                  // positions
  std::uint32_t opened_len = 0;                 // positions that were there when its sequence was opened
  std::uint32_t cut_first = 0, cut_second = 0;  // where its chunks have to end: Opened's
  std::uint32_t opened_known = 0;               // known() then

  std::uint32_t known() const { return prompt_len + static_cast<std::uint32_t>(output.size()); }
  // The token at `position` < known(). The newest one is what a step in flight was fed, and is kept at hand.
  Token token(std::uint32_t position) const { return position + 1 == known() && !output.empty() ? newest : at(position); }
  Token at(std::uint32_t position) const { return position < prompt_len ? request->prompt[position] : output[position - prompt_len]; }
  // Whether output `output_index` may not be just any id, by min_tokens or a closed thinking block.
  bool bars(std::uint32_t output_index) const { return output_index < min_tokens || closed_thinking; }
  // Tokens that rows in flight will produce.
  std::uint32_t ahead() const {
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < n_rows; ++i) n += rows[i].produces ? 1 : 0;
    return n;
  }
};

// What a step's row was launched as; the request may be gone when it settles.
struct StepRow {
  std::uint32_t index = 0;  // in State::live
  std::uint32_t epoch = 0;
  SeqId seq;  // no two requests, nor two lives of one, have the same
  std::uint32_t n_tokens = 0;
  bool fed = false;
  RowReadback readback = RowReadback::none;
  bool logprobs = false;  // come back with it
};

struct PipelineStep {
  Ticket ticket;
  std::vector<StepRow> rows;
};

// The steps of one stream: the first n of `steps` are in flight, oldest first; the rest is capacity.
struct Pipeline {
  std::vector<PipelineStep> steps;
  std::uint32_t n = 0;
  bool ring_blocked = false;  // no ring slot was free: nothing is launched until something returns one
};

// Logits that the sampler is reading: they hold a ring slot of their stream.
struct Sampling {
  Ticket ticket;
  std::uint32_t stream = kComputeStream;
};

// Why a request has no row in the step that is being planned, or what its row is.
enum class RowChoice : std::uint8_t {
  host,               // its tokens are known
  feed,               // one token, from the row in flight that produces it
  last_by_count,      // the tokens in flight reach max_tokens or the context: never fed (R10)
  at_sampler,         // the sampler is choosing its next token
  needs_host,         // the next token must be seen first: the host samples it
  stop_may_complete,  // the text held back begins a stop string
  no_feed,            // depth 1, or the device cannot feed itself
  rows_full,          // it has a row in each of kMaxDepth steps
  kv_blocked,         // its next row needs a block and none is free
  other_stream,       // its rows in flight are on the prefill stream, and this one would not be
  not_open,           // the router has not answered its open
};

struct SchedulerCore::State {
  State(const SchedulerConfig& config, const ModelInfo& model);

  const SchedulerConfig config;
  const ModelInfo model;
  const std::uint32_t depth;
  const std::uint32_t max_batch;
  const std::uint32_t step_tokens;

  std::vector<Live> live;
  std::vector<std::uint32_t> free_live;
  std::unordered_map<std::uint64_t, std::uint32_t> by_generation;  // lookup only, never iterated
  std::deque<std::uint32_t> waiting;                               // order of service: resumed ones first
  std::vector<std::uint32_t> running;                              // opening and running, in the order they were opened
  std::uint32_t turn = 0;                                          // where the next plan starts in `running`, when the last one was cut
  bool chunks_first = false;                                       // the last plan had no room for the first chunk of a prompt that was due
  std::uint64_t admissions = 0;

  std::array<Pipeline, kStepStreams> pipelines;
  std::uint64_t next_step = 1;
  bool unanswered = false;                     // a launch whose Accepted has not come
  std::uint32_t launched_on = kComputeStream;  // the newest one's stream
  std::vector<Sampling> samples;
  std::vector<Effect> effects;  // go with the next launch, in order
  std::uint32_t applying = 0;   // effects sent alone and not answered
  DeviceFacts facts;            // as of the router's last answer
  std::vector<RequestId> sampler_closed;
  std::vector<Placed> ended;
  std::uint32_t saves = 0, restores = 0;  // not answered; together at most config.spill_places
  bool restore_waits = false;             // no blocks for what was saved: nobody is opened until something settles
  std::vector<SeqId> drops;               // saved states that nobody wants any more
  TimeNs timer = 0;                       // armed for; 0 = not armed
  AdapterRef held;                        // LoraHold: its requests are not opened
  TimeNs held_until = 0;
  bool draining = false;
  Error halted;       // code none = works
  bool left = false;  // and movable: its requests are the dispatcher's, and nothing is done any more
  bool told = false;  // ReplicaLost is on its way
  TimeNs last_settled = 0;
  SchedulerStats stats;

  const std::vector<std::string> no_stops;  // in force until min_tokens

  Pool<StepPlan> plans;
  Pool<SampleBatch> sample_batches;
  Pool<TokenBatch> token_batches;
  TokenBatch staged;                           // what deliver() sends; the delivery thread never touches this one
  bool settled_now = false;                    // the message at hand is a Settled
  std::uint32_t settling_on = kComputeStream;  // of a step of this stream
  bool due = false;                            // `staged` was held back once
  std::vector<std::uint32_t> without_text;     // indices in `live`: deliver() makes their text, so that the next launch need not wait
  std::optional<Draft<SampleBatch>> sample;    // likewise

  Live* find(const RequestId& id);
  Live* find(const StepRow& row);  // null: ended, or its sequence is another one now

  // row_choice.cc
  // The ids that output `output_index` may not be, ascending; valid until the next call.
  const std::vector<Token>& barred(const Live& r, std::uint32_t output_index);
  RowMask mask_for(const Live& r, std::uint32_t output_index);
  RowReadback chooser(const Live& r, std::uint32_t output_index);
  std::uint32_t sample_words(const Live& r, std::uint32_t output_index);  // of ModelInfo::max_sample_words
  RowChoice choose(const Live& r);
  // Whether a step in flight names it: then `stream` is that step's.
  bool is_bound(const Live& r) const;
  // The stream that its next row, with `known` tokens at hand, is for.
  std::uint32_t stream_for(const Live& r, std::uint32_t known) const;
  std::vector<Token> barred_ids;

  // window.cc
  // Blocks that a sequence holds at most until `end` positions are computed, now that `settled` are.
  std::uint32_t blocks_until(std::uint32_t settled, std::uint32_t end) const;
  // The most tokens that its next row can have.
  std::uint32_t chunk_limit(const Live& r) const;

  // plan.cc
  void admit(SchedulerOutbox& out);
  std::uint32_t in_flight() const { return pipelines[kComputeStream].n + pipelines[kPrefillStream].n; }
  bool plan(SchedulerOutbox& out);
  bool may_plan(std::uint32_t stream);
  void ring_freed() {
    for (Pipeline& p : pipelines) p.ring_blocked = false;
  }
  bool plan(std::uint32_t stream, SchedulerOutbox& out);
  void add_row(StepPlan& plan, PipelineStep& step, std::uint32_t index, RowChoice choice, std::uint32_t n_tokens, RowReadback chosen_by);
  void add_sample(StepPlan& plan, Live& r, InFlightRow& row);
  void refused(const DeviceError& error);
  void no_room(const PipelineStep& step, const DeviceError& error);
  Live* choose_victim();
  void preempt(Live& r);

  // lora.cc
  bool is_held(const Live& r) const { return held.slot != 0 && r.adapter == held; }
  void preempt_held();
  void arm(TimeNs at, SchedulerOutbox& out);  // a Tick at `at`, or before
  // spill.cc
  bool may_spill(const Live& r) const;
  void spill(Live& r);
  void forget_saved(Live& r);
  void opened_from_file(Live* r, const Opened& m);
  void restore_refused(Live* r, const Opened& m);
  bool something_moves() const;
  void unblock();

  // commit.cc
  void settle_row(const StepRow& row, const StepResult& result, std::uint32_t i, std::uint32_t logits_row, std::uint32_t logprobs_row);
  void commit_token(Live& r, Token id, float logprob, const TokenLogprob* best, std::uint32_t n_best);
  void keep_state(const Live& r);
  void make_text(Live& r);
  void redo(Live& r);
  void row_failed(Live& r, ErrorCode code, const std::string& what);
  void ask_sampler(Live& r, const InFlightRow& row, const StepResult& result, std::uint32_t logits_row);
  void finish(Live& r, FinishReason reason, Error error = {});
  void halt(const DeviceError& error);
  void end_all();

  // take_over.cc
  // Brings what follows from the request's output to where it was; the reason if the output had ended it already.
  std::optional<FinishReason> take_over(Live& r, const std::vector<Token>& output);

  // core.cc: what every handler ends with (R10: something is in flight, a timer is armed, or the queues are empty)
  void advance(TimeNs now, SchedulerOutbox& out);
};

std::uint32_t blocks_for(std::uint32_t positions, std::uint32_t block_size);

}  // namespace troupe::actors
