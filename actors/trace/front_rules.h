// R5 over the front of several replicas, kept from the messages alone: what delivery was given of each attempt at a request,
// and that nothing goes to a replica that is fenced.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "messages/protocol.h"

namespace troupe::actors::trace {

class FrontRules {
 public:
  // `tokens` false: ids are not what they were, and are not compared.
  FrontRules(bool from_start, bool tokens) : from_start_(from_start), compare_(tokens) {}

  // As the dispatcher sends them.
  void accepted(const SubmitReply& m);
  void admitted(const Admit& m);
  void fenced(const ReplicaRef& replica) { fenced_.insert({replica.index, replica.incarnation}); }
  // As delivery takes them up.
  void reclaim(const Reclaim& m);
  void delivered(const TokenBatch& batch);
  void ended(const EndRequests& m);
  // As delivery sends it.
  void reclaimed(const Reclaimed& m);

  const std::string& violation() const { return violation_; }
  std::uint64_t requests() const { return streams_.size(); }
  std::uint64_t tokens() const { return n_tokens_; }

 private:
  struct Stream {
    std::uint32_t attempt = 0;
    std::vector<Token> tokens;
    bool accepted = false;
    bool ended = false;
  };
  Stream* find(const RequestId& id);
  void broken(std::string what) {
    if (violation_.empty()) violation_ = std::move(what);
  }

  const bool from_start_;
  const bool compare_;
  std::map<RequestId, Stream> streams_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> fenced_;
  std::uint64_t n_tokens_ = 0;
  std::string violation_;
};

}  // namespace troupe::actors::trace
