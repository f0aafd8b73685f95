#include "actors/trace/lora_rules.h"

namespace troupe::actors::trace {

void LoraRules::taken(const LoraSubmit& m) { open_[m.id] = {++order_, m.command}; }

void LoraRules::taken(const Admit& m) { admits_[m.id] = ++order_; }

void LoraRules::sent(const Admit& m) {
  const auto at = admits_.find(m.id);
  if (at == admits_.end()) return;  // it came before the recording begins
  const std::uint64_t order = at->second;
  admits_.erase(at);
  if (m.parked || !m.output.empty() || m.request->adapter.empty()) return;  // it ended meanwhile, or asks for what is standard then
  for (const auto& [id, open] : open_) {
    using Kind = LoraCommand::Kind;
    const Kind kind = open.command.kind;
    if (kind == Kind::rotate || kind == Kind::list) continue;  // no table changes
    if (open.order < order && open.command.name == m.request->adapter && violation_.empty())
      violation_ = "R9: " + label(m.id) + " of adapter \"" + open.command.name + "\" went on while the command before it, " +
                   label(open.command) + ", had no outcome: admission was open";
  }
}

}  // namespace troupe::actors::trace
