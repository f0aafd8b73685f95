// For an embedder that is an actor itself: what a request's callback would be told comes as Deliver messages instead,
// one a token and one for the end, in order. Each batch holds this request's events only.
//
//   runtime->submit(request, deliver_to(receiver));
//
// The receiver may live in any actor system of the process; if it dies, what was for it is dropped.
#pragma once

#include <utility>

#include <caf/all.hpp>

#include "actors/runtime.h"

namespace troupe {

using TokenReceiver = caf::typed_actor<caf::reacts_to<Deliver>>;

inline RequestCallback deliver_to(TokenReceiver receiver) {
  return [receiver = std::move(receiver)](const RequestEvent& e) {
    TokenBatch batch;
    batch.text = e.text;
    const auto size = static_cast<std::uint32_t>(batch.text.size());
    if (e.token != nullptr) {
      TokenEvent& token = batch.events.emplace_back(*e.token);
      token.text_begin = token.best_begin = 0;
      token.text_size = size;
      batch.best.assign(e.best, e.best + token.best_size);
    }
    if (e.finish != nullptr) {
      Finish& finish = batch.finishes.emplace_back(*e.finish);
      finish.text_begin = 0;
      finish.text_size = size;
    }
    caf::anon_send(receiver, Deliver{{}, Shared<TokenBatch>::of(std::move(batch))});
  };
}

}  // namespace troupe
