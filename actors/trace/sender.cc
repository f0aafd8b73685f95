#include "actors/trace/sender.h"

#include <charconv>

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

std::string seq_label(std::uint64_t seq) {
  if (seq == 0) return "-";
  return label(sender_of(seq)) + ":" + std::to_string(count_of(seq));
}

std::uint64_t parse_seq(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return 0;
  const std::string who = text.substr(0, colon);
  const std::string kind = who.substr(0, who.find('.'));
  std::uint64_t index = 0, count = 0;
  if (kind.size() < who.size() && !number(std::string_view(who).substr(kind.size() + 1), index)) return 0;
  if (!number(std::string_view(text).substr(colon + 1), count) || index > 0xFF) return 0;
  for (std::uint16_t i = 1; i < kMostSenders; ++i) {
    if (kind == name(static_cast<Sender>(i))) return seq_base({static_cast<Sender>(i), static_cast<std::uint16_t>(index)}) | count;
  }
  return 0;
}

}  // namespace troupe::actors
