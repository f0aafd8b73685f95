// The dispatcher's shell: answers submissions, cancels and drains, and watches over the other actors. When one of them
// dies unasked, every live request ends with `error` and later ones are refused. On the control thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "actors/dispatcher/core.h"
#include "actors/wire.h"

namespace troupe::actors {

class DispatcherShell final : public Shell<DispatcherActor, DispatcherCore, DispatcherOutbox> {
 public:
  DispatcherShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const DispatcherConfig& core, const ModelInfo& model)
      : Shell(config, Sender::dispatcher, std::move(counts), core, model) {}
  const char* name() const override { return "dispatcher"; }
  behavior_type make_behavior() override;
  void on_exit() override;

  void put(SubmitReply&& m);
  void put(Admit&& m);
  void put(CancelRequest&& m) { to_scheduler(std::move(m)); }
  void put(Reclaim&& m) { send_to(peers_->delivery, std::move(m)); }
  void put(EndRequests&& m) { send_to(peers_->delivery, std::move(m)); }
  void put(AskReport&& m) { send_to(peers_->scheduler, std::move(m)); }
  void put(FetchAdapter&& m) { send_to(peers_->lora, std::move(m)); }
  void put(SetTimer&& m) { timer_.set(m.at, *this, post_); }
  // Of several replicas only.
  void put(StartReplica&&) {}
  void put(StopReplica&&) {}
  void put(ReplicaAnswer&&) {}
  void put(ReplicaList&&) {}
  void put(CancelReply&& m);
  void put(Drain&& m) { to_scheduler(std::move(m)); }
  void put(Ended&& m) { send_to(peers_->lora, std::move(m)); }
  void put(LoraSubmit&& m) { send_to(peers_->lora, std::move(m)); }
  void put(LoraAnswer&& m);
  void put(Drained&& m);

 private:
  void attach(const Attach& m);
  void open(const RequestId& id);
  void down(const caf::down_msg& m);
  void close_loras(const Error& error);
  // By way of the LoRA controller, where there is one: it binds requests to adapters.
  template <class M> void to_scheduler(M&& m) {
    if (peers_->lora) {
      send_to(peers_->lora, std::forward<M>(m));
    } else {
      send_to(peers_->scheduler, std::forward<M>(m));
    }
  }

  Timer timer_;
  SubmitReply reply_;                   // of the submission that is being handled
  Shared<Request> request_;             // of the same
  std::shared_ptr<Callback> callback_;  // of the same
  std::vector<std::pair<std::uint64_t, Answer<CancelReply>>> cancels_;  // by client, in order
  std::vector<Answer<Drained>> drains_;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<LoraCallback>>> loras_;  // by the command's id
  std::uint64_t lora_ids_ = 0;
  Error fault_;  // an actor died
};

}  // namespace troupe::actors
