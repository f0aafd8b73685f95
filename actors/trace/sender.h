// Who sends and who receives.
#pragma once

#include <cstdint>
#include <string>

namespace troupe::actors {

// A seq is {sender, the sender's index, its count}: unique in a runtime without a counter that threads share.
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
  driver
};

const char* name(Sender sender);  // "scheduler"

// One end of a message. `index` tells senders of one kind apart (the driver's ring slots).
struct Party {
  Sender sender = Sender::runtime;
  std::uint16_t index = 0;
  bool operator==(const Party&) const = default;
};

inline std::uint64_t seq_base(Party p) { return std::uint64_t{static_cast<std::uint16_t>(p.sender)} << 48 | std::uint64_t{p.index} << 40; }
inline Party sender_of(std::uint64_t seq) { return {static_cast<Sender>(seq >> 48), static_cast<std::uint16_t>(seq >> 40 & 0xFF)}; }
inline std::uint64_t count_of(std::uint64_t seq) { return seq & ((std::uint64_t{1} << 40) - 1); }

std::string label(const Party& p);         // "scheduler", "driver.2"
std::string seq_label(std::uint64_t seq);  // "scheduler:17"; "-" for 0
// The seq that seq_label wrote; 0 = it is none.
std::uint64_t parse_seq(const std::string& text);

}  // namespace troupe::actors
