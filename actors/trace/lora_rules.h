// R9 as the LoRA controller's messages show it: what comes after a command that concerns its adapter waits for the
// command's outcome.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "messages/protocol.h"

namespace troupe::actors::trace {

class LoraRules {
 public:
  // As the controller takes them up.
  void taken(const LoraSubmit& m);
  void taken(const Admit& m);
  // As it sends them. The Admit on its way to the scheduler; the answer that ends a command.
  void sent(const Admit& m);
  void sent(const LoraAnswer& m) { open_.erase(m.id); }

  const std::string& violation() const { return violation_; }

 private:
  struct Command {
    std::uint64_t order = 0;
    LoraCommand command;
  };
  std::uint64_t order_ = 0;
  std::map<std::uint64_t, Command> open_;      // by id: not answered yet
  std::map<RequestId, std::uint64_t> admits_;  // order of those that the controller has
  std::string violation_;
};

}  // namespace troupe::actors::trace
