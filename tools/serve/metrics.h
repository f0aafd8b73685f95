// What /metrics says. Names are vLLM's where the meaning is (dashboards then work), `troupe_…` where it is our own.
//
// Counters of tokens and requests are counted as the runtime's events arrive, so that they are exactly what clients were
// sent; the runtime's own figures are copied in at each scrape.
// Any thread.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/runtime.h"

namespace troupe::serve {

class Metrics {
 public:
  explicit Metrics(const std::string& model_name);

  void token(double since_submit, std::optional<double> since_last);
  void finished(const Finish& finish, std::uint32_t counted_tokens, double since_submit, bool abandoned);
  void http_reply(int status);
  void connection_opened();
  void connection_closed();
  void refused_connection();
  void abandoned();  // a client left, or did not read, before its answer was complete

  // In Prometheus' text format.
  std::string expose(const RuntimeMetrics& runtime);

 private:
  prometheus::Family<prometheus::Counter>& counters(const char* name, const char* help);
  prometheus::Counter& counter(const char* name, const char* help);
  prometheus::Family<prometheus::Gauge>& gauges(const char* name, const char* help);
  prometheus::Gauge& gauge(const char* name, const char* help);
  void expose(const std::vector<ReplicaStatus>& replicas);
  prometheus::Histogram& histogram(const char* name, const char* help, const prometheus::Histogram::BucketBoundaries& bounds);
  static void raise_to(prometheus::Counter& counter, std::uint64_t value);

  prometheus::Registry registry_;
  prometheus::Labels labels_;
  std::mutex exposing_;
  prometheus::Counter &prompt_tokens_, &generation_tokens_;
  prometheus::Family<prometheus::Counter>& successes_;
  prometheus::Histogram &first_token_, &inter_token_, &request_time_;
  prometheus::Gauge &running_, &waiting_, &kv_usage_;
  prometheus::Counter &preemptions_, &prefix_queries_, &prefix_hits_;
  prometheus::Family<prometheus::Counter>& replies_;
  prometheus::Gauge &connections_, &since_settled_;
  // By replica.
  prometheus::Family<prometheus::Gauge>&replica_state_, &replica_live_, &replica_running_, &replica_waiting_, &replica_outstanding_,
      &replica_kv_usage_;
  prometheus::Family<prometheus::Gauge>&replica_steps_, &replica_steps_ahead_, &replica_tokens_, &replica_lives_;
  prometheus::Gauge& unplaced_;
  prometheus::Counter &refused_, &abandoned_, &steps_, &steps_ahead_, &overruns_, &messages_;
};

}  // namespace troupe::serve
