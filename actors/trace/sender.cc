#include "actors/trace/sender.h"

#include <charconv>
#include <string_view>

namespace troupe::actors {
namespace {

constexpr std::uint16_t kMostSenders = 64;

bool number(std::string_view text, std::uint64_t& x) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

const char* name(Sender sender) {
  switch (sender) {
    case Sender::runtime:
      return "runtime";
    case Sender::dispatcher:
      return "dispatcher";
    case Sender::scheduler:
      return "scheduler";
    case Sender::router:
      return "router";
    case Sender::sampler:
      return "sampler";
    case Sender::stream:
      return "stream";
    case Sender::device:
      return "device";
    case Sender::delivery:
      return "delivery";
    case Sender::spill:
      return "spill";
    case Sender::lora:
      return "lora";
    case Sender::loader:
      return "loader";
    case Sender::copy_stream:
      return "copy_stream";
    case Sender::prefill_stream:
      return "prefill_stream";
    case Sender::driver:
      return "driver";
  }
  return "unknown";
}

std::string label(const Party& p) {
  std::string out = name(p.sender);
  if (p.index != 0 || p.sender == Sender::driver) out += "." + std::to_string(p.index);
  return out;
}

std::string part_name(std::uint8_t part) {
  if (part == kWhole) return "";
  return part == kFront ? "front" : "r" + std::to_string(part - kFirstReplica);
}

std::string seq_label(std::uint64_t seq) {
  if (seq == 0) return "-";
  const std::uint8_t part = part_of(seq);
  return (part == kWhole ? "" : part_name(part) + "/") + label(sender_of(seq)) + ":" + std::to_string(count_of(seq));
}

std::uint64_t parse_seq(const std::string& text) {
  std::string_view rest = text;
  std::uint8_t part = kWhole;
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view name = rest.substr(0, slash);
    std::uint64_t replica = 0;
    if (name == "front") {
      part = kFront;
    } else if (!name.starts_with('r') || !number(name.substr(1), replica) || replica >= kMostReplicas) {
      return 0;
    } else {
      part = static_cast<std::uint8_t>(kFirstReplica + replica);
    }
    rest.remove_prefix(slash + 1);
  }
  const std::size_t colon = rest.find(':');
  if (colon == std::string_view::npos) return 0;
  const std::string_view who = rest.substr(0, colon);
  const std::string_view kind = who.substr(0, who.find('.'));
  std::uint64_t index = 0, count = 0;
  if (kind.size() < who.size() && !number(who.substr(kind.size() + 1), index)) return 0;
  if (!number(rest.substr(colon + 1), count) || index > 0xFF) return 0;
  for (std::uint16_t i = 1; i < kMostSenders; ++i) {
    const Party party{static_cast<Sender>(i), static_cast<std::uint16_t>(index)};
    if (kind == name(party.sender)) return seq_base(party, {part, 1}) | count;
  }
  return 0;
}

}  // namespace troupe::actors
