// Who sends and who receives.
#pragma once

#include <cstdint>
#include <string>

namespace troupe::actors {

// A seq is {part, sender, the sender's index, its count}: unique in a runtime without a counter that threads share.
enum class Sender : std::uint16_t {
  runtime = 1,
  dispatcher,
  scheduler,
  router,
  sampler,
  stream,
  device,
  delivery,
  spill,
  lora,
  loader,
  copy_stream,
  prefill_stream,
  driver
};

const char* name(Sender sender);  // "scheduler"

// One end of a message. `index` tells senders of one kind apart (the driver's ring slots).
struct Party {
  Sender sender = Sender::runtime;
  std::uint16_t index = 0;
  bool operator==(const Party&) const = default;
};

// A runtime of one replica is recorded as a whole. One of several is recorded in parts, each with its actors: the front
// (dispatcher, delivery) and every replica, which a restart makes anew.
struct Place {
  std::uint8_t part = 0;  // 0 = the whole, 1 = the front, 2 + i = replica i
  std::uint32_t incarnation = 1;
  bool operator==(const Place&) const = default;
};
inline constexpr std::uint8_t kWhole = 0, kFront = 1, kFirstReplica = 2;
inline constexpr std::size_t kMostReplicas = 0xFF - kFirstReplica + 1;

inline constexpr int kCountBits = 40, kIncarnationShift = 32;  // a replica's incarnations count on from 2^32 each
inline std::uint64_t seq_base(Party p, Place place = {}) {
  return std::uint64_t{place.part} << 56 | std::uint64_t{static_cast<std::uint8_t>(p.sender)} << 48 | std::uint64_t{p.index} << kCountBits |
         std::uint64_t{(place.incarnation - 1) & 0xFF} << kIncarnationShift;
}
inline Party sender_of(std::uint64_t seq) {
  return {static_cast<Sender>(seq >> 48 & 0xFF), static_cast<std::uint16_t>(seq >> kCountBits & 0xFF)};
}
inline std::uint8_t part_of(std::uint64_t seq) { return static_cast<std::uint8_t>(seq >> 56); }
inline std::uint64_t count_of(std::uint64_t seq) { return seq & ((std::uint64_t{1} << kCountBits) - 1); }

std::string part_name(std::uint8_t part);  // "front", "r0"; "" of a whole
std::string label(const Party& p);         // "scheduler", "driver.2"
std::string seq_label(std::uint64_t seq);  // "scheduler:17", "front/dispatcher:3", "r0/scheduler:17"; "-" for 0
// The seq that seq_label wrote; 0 = it is none.
std::uint64_t parse_seq(const std::string& text);

}  // namespace troupe::actors
