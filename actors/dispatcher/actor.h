// The dispatcher's shell: answers submissions, cancels, drains and questions, sends what its core says to the replica that it
// names, in the life that it names, and watches over the actors of every replica. When one of them dies unasked, its replica is
// lost; if there is but one that cannot be moved from, every live request ends with `error` and later ones are refused. On the
// front's control thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "actors/dispatcher/core.h"
#include "actors/wire.h"

namespace troupe::actors {

class DispatcherShell final : public Shell<DispatcherActor, DispatcherCore, DispatcherOutbox> {
 public:
  DispatcherShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const DispatcherConfig& core, const ModelInfo& model)
      : Shell(config, Sender::dispatcher, std::move(counts), core, model), alone_(core.replicas.empty()) {}
  const char* name() const override { return "dispatcher"; }
  behavior_type make_behavior() override;
  void on_exit() override;

  void put(SubmitReply&& m);
  void put(Admit&& m);
  void put(CancelRequest&& m) { to_requests(std::move(m)); }
  void put(Drain&& m) { to_requests(std::move(m)); }
  void put(CancelReply&& m);
  void put(Drained&& m);
  void put(AskReport&& m);
  void put(Ended&& m) { to_lora(std::move(m)); }
  void put(LoraSubmit&& m) { to_lora(std::move(m)); }
  void put(FetchAdapter&& m) { to_lora(std::move(m)); }
  void put(LoraAnswer&& m);
  void put(Reclaim&& m);
  void put(EndRequests&& m);
  void put(StartReplica&& m);
  void put(StopReplica&& m);
  void put(ReplicaAnswer&& m);
  void put(ReplicaList&& m);
  void put(SetTimer&& m) { timer_.set(m.at, *this, post_); }

 private:
  // A replica that has joined and was not stopped since.
  struct Present {
    ReplicaRef ref{};
    ReplicaDoors doors;
    std::vector<caf::strong_actor_ptr> watch;
  };
  template <class R>
  using Questions = std::vector<std::pair<std::uint64_t, Answer<R>>>;  // by id, in order

  void attach(const AttachFront& m);
  void join(const Joined& m);
  void forget(Present& replica);
  void down(const caf::down_msg& m);
  void fail(Error fault);
  void close_loras(const Error& error);
  // Of that life of the replica; null: it is over, and what is for it is dropped.
  Present* find(const ReplicaRef& ref);
  template <class M>
  void to_requests(M&& m) {
    if (Present* p = find(m.replica)) post_.send(p->doors.requests, p->doors.requests_to, std::forward<M>(m), context());
  }
  template <class M>
  void to_lora(M&& m) {
    if (Present* p = find(m.replica)) send_to(p->doors.lora, std::forward<M>(m));
  }
  // Asks the core; its answer comes by put(). Closed at once after a fault, when nothing is answered any more.
  template <class R, class M>
  caf::typed_response_promise<R> question(Questions<R>& questions, const M& m);

  const bool alone_;
  std::shared_ptr<const Doors> front_;
  std::vector<Present> present_;  // by index
  Timer timer_;
  SubmitReply reply_;                   // of the submission that is being handled
  std::shared_ptr<Callback> callback_;  // of the same, until delivery knows it
  std::uint32_t max_tokens_ = 0;        // of the same
  Questions<CancelReply> cancels_;      // by client
  std::vector<Answer<Drained>> drains_;
  Questions<ReplicaAnswer> changes_;
  Questions<ReplicaList> lists_;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<LoraCallback>>> loras_;  // by the command's id
  std::uint64_t ids_ = 0;                                                       // of commands and questions
  Error fault_;                                                                 // nothing goes on
};

}  // namespace troupe::actors
