// The scheduler's side of the rules, kept from the messages alone: what every client got, and where each token came from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/trace/witness.h"
#include "messages/protocol.h"

namespace troupe::actors::trace {

class Streams {
 public:
  // `tokens` false: ids are not what they were, and are not compared.
  Streams(const ModelInfo& model, bool from_start, bool tokens);

  void admitted(const Admit& m, bool first);  // as it is sent; first: by the dispatcher, and not on its way on
  void opened(const Opened& m);               // likewise
  void launched(const StepPlan& plan);        // likewise; by the scheduler
  void applied(const Effect& effect);
  // As the scheduler takes them up; handled() is for every message that it does. It may hold back what it has for the clients
  // until the next one.
  void handled();
  void settled(const Settled& m);
  void sampled(const Sampled& m);
  void halted() { halted_ = true; }
  // As the scheduler sends them.
  void delivered(const TokenBatch& batch, const Witness& witness);
  void ended(const Ended& m);
  // Nothing more comes, and everything was given back.
  void finish();

  const std::string& violation() const { return violation_; }
  std::uint64_t requests() const { return streams_.size(); }
  std::uint64_t tokens() const { return n_tokens_; }
  std::uint64_t live() const;

 private:
  struct Stream {
    Shared<Request> request;
    std::uint32_t tokens = 0;
    bool closed_thinking = false;
    bool over = false;  // by its last token: no other may come
    bool ended = false;
    std::string text;  // since min_tokens
  };
  struct Row {
    SeqId seq;
    std::uint32_t epoch = 0;
    std::uint32_t end = 0;  // position after its last
    bool device_chooses = false;
  };
  struct Source {  // of a token that may be delivered now
    Token id = 0;
    std::uint32_t index = 0;
    bool any_index = false;
    bool disowned = false;
  };
  void told();
  void over(SeqId seq);
  void token(const TokenEvent& e);
  void check_source(const TokenEvent& e, const Stream& s);
  void advance(Stream& s, Token id);
  void broken(std::string what);

  const ModelInfo& model_;
  const bool from_start_;
  const bool compare_;
  std::map<RequestId, Stream> streams_;
  std::map<SeqId, RequestId> requests_;
  std::map<SeqId, std::uint32_t> epochs_;  // as the scheduler has told the router
  struct Step {
    std::uint32_t stream = kComputeStream;
    std::vector<Row> rows{};
  };
  std::map<Ticket, Step> steps_;
  // Of the message that is being handled, and of the one before it.
  std::map<RequestId, std::vector<Source>> sources_, held_sources_;
  std::vector<RequestId> must_have_ended_, held_ended_;
  bool halted_ = false;
  bool lost_ = false;
  std::uint64_t n_tokens_ = 0;
  std::string violation_;
};

}  // namespace troupe::actors::trace
