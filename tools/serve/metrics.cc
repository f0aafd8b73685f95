#include "tools/serve/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>

namespace troupe::serve {
namespace {

const prometheus::Histogram::BucketBoundaries kFirstToken = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                                             0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80};
const prometheus::Histogram::BucketBoundaries kInterToken = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                                             0.2,   0.3,    0.4,   0.5,  0.75,  1,    2.5,   5};
const prometheus::Histogram::BucketBoundaries kRequest = {0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,
                                                          10,   15,  20,  30,  40,  50, 60,  120, 240, 480};

}  // namespace

prometheus::Family<prometheus::Counter>& Metrics::counters(const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Labels(labels_).Register(registry_);
}
prometheus::Counter& Metrics::counter(const char* name, const char* help) { return counters(name, help).Add({}); }
prometheus::Family<prometheus::Gauge>& Metrics::gauges(const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Labels(labels_).Register(registry_);
}
prometheus::Gauge& Metrics::gauge(const char* name, const char* help) { return gauges(name, help).Add({}); }
prometheus::Histogram& Metrics::histogram(const char* name, const char* help, const prometheus::Histogram::BucketBoundaries& bounds) {
  return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels_).Register(registry_).Add({}, bounds);
}

Metrics::Metrics(const std::string& model_name)
    : labels_{{"model_name", model_name}},
      prompt_tokens_(counter("vllm:prompt_tokens_total", "Prompt tokens of the requests that ended.")),
      generation_tokens_(counter("vllm:generation_tokens_total", "Tokens generated.")),
      successes_(counters("vllm:request_success_total", "Requests that ended, by how.")),
      first_token_(histogram("vllm:time_to_first_token_seconds", "From submission to the first token.", kFirstToken)),
      inter_token_(histogram("vllm:inter_token_latency_seconds", "Between two tokens of an answer.", kInterToken)),
      request_time_(histogram("vllm:e2e_request_latency_seconds", "From submission to the end.", kRequest)),
      running_(gauge("vllm:num_requests_running", "Requests in the batch.")),
      waiting_(gauge("vllm:num_requests_waiting", "Requests that wait for room.")),
      kv_usage_(gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks in use; 1 is all.")),
      preemptions_(counter("vllm:num_preemptions_total", "Requests that gave their KV blocks up for others.")),
      prefix_queries_(counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache or computed.")),
      prefix_hits_(counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.")),
      replies_(counters("troupe_http_replies_total", "HTTP replies, by status.")),
      connections_(gauge("troupe_http_connections", "Open connections.")),
      since_settled_(gauge("troupe_since_last_settled_seconds", "How long work has waited without a step settling; 0 when idle.")),
      replica_state_(gauges("troupe_replica_state", "1 for the state that the replica is in.")),
      replica_live_(gauges("troupe_replica_requests_live", "Requests that are placed there.")),
      replica_running_(gauges("troupe_replica_requests_running", "Of those, in the batch.")),
      replica_waiting_(gauges("troupe_replica_requests_waiting", "Of those, waiting for room.")),
      replica_outstanding_(
          gauges("troupe_replica_outstanding_tokens", "Prompt and output of the requests that are placed there, at most.")),
      replica_kv_usage_(gauges("troupe_replica_kv_cache_usage", "Share of its KV blocks in use; 1 is all.")),
      replica_steps_(gauges("troupe_replica_steps", "Steps launched since its last start.")),
      replica_steps_ahead_(gauges("troupe_replica_steps_ahead", "Of those, while an earlier one was unsettled.")),
      replica_tokens_(gauges("troupe_replica_tokens", "Tokens committed since its last start.")),
      replica_lives_(gauges("troupe_replica_starts", "How often it was started.")),
      unplaced_(gauge("troupe_requests_unplaced", "Requests that wait for a replica.")),
      refused_(counter("troupe_http_connections_refused_total", "Connections past the limit.")),
      abandoned_(counter("troupe_requests_abandoned_total", "API calls whose client left, or did not read, before the end.")),
      steps_(counter("troupe_steps_total", "Steps launched.")),
      steps_ahead_(counter("troupe_steps_ahead_total", "Steps launched while an earlier one was unsettled.")),
      overruns_(counter("troupe_overrun_rows_total", "Rows that ran ahead and were dropped.")),
      messages_(counter("troupe_messages_total", "Messages between actors.")) {
  for (const char* reason : {"stop", "length", "abort", "error", "deadline"}) successes_.Add({{"finished_reason", reason}});
}

void Metrics::token(double since_submit, std::optional<double> since_last) {
  generation_tokens_.Increment();
  if (since_last) {
    inter_token_.Observe(*since_last);
  } else {
    first_token_.Observe(since_submit);
  }
}

void Metrics::finished(const Finish& finish, std::uint32_t counted_tokens, double since_submit, bool abandoned) {
  // A token that ends an answer and does not belong to it has no event of its own.
  if (finish.usage.completion_tokens > counted_tokens) generation_tokens_.Increment(finish.usage.completion_tokens - counted_tokens);
  prompt_tokens_.Increment(finish.usage.prompt_tokens);
  const bool aborted = abandoned || finish.reason == FinishReason::cancelled;
  successes_.Add({{"finished_reason", aborted ? "abort" : name(finish.reason)}}).Increment();
  request_time_.Observe(since_submit);
}

void Metrics::http_reply(int status) { replies_.Add({{"status", std::to_string(status)}}).Increment(); }
void Metrics::connection_opened() { connections_.Increment(); }
void Metrics::connection_closed() { connections_.Decrement(); }
void Metrics::refused_connection() { refused_.Increment(); }
void Metrics::abandoned() { abandoned_.Increment(); }

void Metrics::raise_to(prometheus::Counter& counter, std::uint64_t value) {
  counter.Increment(std::max(0.0, static_cast<double>(value) - counter.Value()));
}

void Metrics::expose(const std::vector<ReplicaStatus>& replicas) {
  for (const ReplicaStatus& r : replicas) {
    const prometheus::Labels replica{{"replica", r.name}};
    const auto set = [&](prometheus::Family<prometheus::Gauge>& family, double value) { family.Add(replica).Set(value); };
    for (const ReplicaState state : {ReplicaState::starting, ReplicaState::up, ReplicaState::draining, ReplicaState::drained,
                                     ReplicaState::lost, ReplicaState::waiting, ReplicaState::failed}) {
      replica_state_.Add({{"replica", r.name}, {"state", name(state)}}).Set(r.state == state ? 1 : 0);
    }
    const DeviceFacts& f = r.report.facts;
    set(replica_live_, r.live);
    set(replica_running_, r.report.running);
    set(replica_waiting_, r.report.waiting);
    set(replica_outstanding_, static_cast<double>(r.outstanding));
    set(replica_kv_usage_, f.total_blocks == 0 ? 0 : static_cast<double>(f.used_blocks + f.fenced_blocks) / f.total_blocks);
    set(replica_steps_, static_cast<double>(r.report.steps));
    set(replica_steps_ahead_, static_cast<double>(r.report.steps_ahead));
    set(replica_tokens_, static_cast<double>(r.report.tokens));
    set(replica_lives_, r.replica.incarnation);
  }
}

std::string Metrics::expose(const RuntimeMetrics& m) {
  const std::lock_guard lock(exposing_);
  running_.Set(m.running);
  waiting_.Set(m.waiting);
  kv_usage_.Set(m.facts.total_blocks == 0 ? 0 : static_cast<double>(m.facts.used_blocks + m.facts.fenced_blocks) / m.facts.total_blocks);
  since_settled_.Set(static_cast<double>(m.since_last_settled) * 1e-9);
  raise_to(preemptions_, m.scheduler.preemptions);
  raise_to(prefix_queries_, m.scheduler.prefill_tokens + m.scheduler.cached_tokens);
  raise_to(prefix_hits_, m.scheduler.cached_tokens);
  raise_to(steps_, m.scheduler.steps);
  raise_to(steps_ahead_, m.scheduler.steps_ahead);
  raise_to(overruns_, m.scheduler.overruns);
  raise_to(messages_, m.messages);
  unplaced_.Set(m.unplaced);
  expose(m.replicas);
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

}  // namespace troupe::serve
