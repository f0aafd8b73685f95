// What every client of a recording got, token by token, and which messages gave it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "actors/trace/reader.h"

namespace troupe::actors::trace {

struct DeliveredToken {
  Token id = 0;
  std::size_t event = 0;  // the Deliver, in Recording::events
};

struct ClientStream {
  RequestId id;
  Shared<Request> request;
  std::uint64_t seed = 0;
  std::size_t admitted = 0;  // the Admit, in Recording::events
  std::vector<DeliveredToken> tokens;
  std::optional<Finish> finish;
  std::size_t finished = 0;  // the Deliver
};

// By client and how many requests it had before: what two runs of one workload have in common.
using ClientStreams = std::map<std::pair<std::uint64_t, std::uint32_t>, ClientStream>;

ClientStreams streams_of(const Recording& recording);

}  // namespace troupe::actors::trace
