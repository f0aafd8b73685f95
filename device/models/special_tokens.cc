#include "device/models/special_tokens.h"

namespace troupe::device {

void SpecialTokens::add(std::string_view text, Token id, Kind kind) {
  std::uint32_t node = 0;
  for (char c : text) {
    const auto [it, added] = edges_.try_emplace(edge(node, c), static_cast<std::uint32_t>(nodes_.size()));
    if (added) nodes_.emplace_back();
    node = it->second;
  }
  if (node == 0 || nodes_[node].id) return;
  nodes_[node] = {id, kind};
  begins_[static_cast<unsigned char>(text[0])] = true;
}

std::optional<SpecialTokens::Found> SpecialTokens::find(std::string_view text, std::size_t from, bool control_too) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<unsigned char>(text[at])]) continue;
    std::optional<Found> longest;
    std::uint32_t node = 0;
    for (std::size_t i = at; i < text.size(); ++i) {
      const auto it = edges_.find(edge(node, text[i]));
      if (it == edges_.end()) break;
      node = it->second;
      const Node& n = nodes_[node];
      if (n.id && (control_too || n.kind == Kind::user_defined)) longest = Found{at, i + 1 - at, *n.id};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace troupe::device
