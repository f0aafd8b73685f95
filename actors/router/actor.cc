#include "actors/router/actor.h"

namespace troupe::actors {

RouterShell::behavior_type RouterShell::make_behavior() {
  return {
      [this](const Attach& m) { peers_ = m.peers; },
      [this](const RingReady& m) { handle(this, m); },
      [this](const Open& m) { handle(this, m); },
      [this](const Launch& m) { handle(this, m); },
      [this](const Await& m) { handle(this, m); },
      [this](const Apply& m) { handle(this, m); },
      [this](const Completed& m) { handle(this, m); },
      [this](const Lora& m) { handle(this, m); },
      [this](const TableChanged& m) { handle(this, m); },
      [this](const EventRecorded& m) { handle(this, m); },
      [this](const CopyDone& m) { handle(this, m); },
      [this](const StateWritten& m) { handle(this, m); },
      [this](const StateRead& m) { handle(this, m); },
      [this](const Teardown& m) {
        auto promise = make_response_promise<TornDown>();
        teardowns_.emplace_back(promise);
        handle(this, m);
        return promise;
      },
      [this](const Ask&) { return core_.facts(); },
  };
}

void RouterShell::put(Enqueue&& m) {
  if (m.step->slot.stream == kPrefillStream)
    send_to(peers_->prefill_stream, std::move(m));
  else
    send_to(peers_->stream, std::move(m));
}

void RouterShell::put(CopyBlocks&& m) {
  if (peers_->copy_stream)
    send_to(peers_->copy_stream, std::move(m));
  else
    send_to(peers_->stream, std::move(m));
}

void RouterShell::put(TornDown&& m) {
  post_.stamp(m);
  for (auto& answer : teardowns_) answer.give(m);
  teardowns_.clear();
}

void RouterShell::on_exit() {
  teardowns_.clear();
  Shell::on_exit();
}

}  // namespace troupe::actors
