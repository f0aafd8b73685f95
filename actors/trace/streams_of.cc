#include "actors/trace/streams_of.h"

namespace troupe::actors::trace {

ClientStreams streams_of(const Recording& recording) {
  ClientStreams out;
  std::map<std::uint64_t, std::uint32_t> count;
  std::map<RequestId, ClientStream*> by_id;
  for (std::size_t i = 0; i < recording.events.size(); ++i) {
    const Event& e = recording.events[i];
    if (const auto* admit = std::get_if<Admit>(&e.message)) {
      if (e.head.from.sender != Sender::dispatcher) continue;  // on its way on
      ClientStream& s = out[{admit->id.client, count[admit->id.client]++}];
      s.id = admit->id;
      s.request = admit->request;
      s.seed = admit->seed;
      s.admitted = i;
      by_id[admit->id] = &s;
    } else if (const auto* deliver = std::get_if<Deliver>(&e.message)) {
      for (const TokenEvent& token : deliver->batch->events) {
        if (const auto it = by_id.find(token.request); it != by_id.end()) it->second->tokens.push_back({token.id, i});
      }
      for (const Finish& finish : deliver->batch->finishes) {
        const auto it = by_id.find(finish.request);
        if (it == by_id.end()) continue;
        it->second->finish = finish;
        it->second->finished = i;
      }
    }
  }
  return out;
}

}  // namespace troupe::actors::trace
