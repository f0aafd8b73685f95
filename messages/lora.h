// LoRA control commands (R9: they run at quiescence only) and their answers.
#pragma once

#include <cstdint>
#include <string>

#include "messages/ids.h"

namespace troupe {

struct LoraCommand {
  enum class Kind : std::uint8_t { load, unload, rotate };
  Kind kind = Kind::load;
  std::string name;
  std::string path;  // load, rotate: a PEFT directory
};

struct LoraAck {
  std::string name;
  AdapterRef adapter;      // load, rotate: where it is now
  TimeNs paused_ns = 0;    // how long the scope was quiescent
};

template <class I> auto inspect(I& f, LoraCommand& x) { return f(x.kind, x.name, x.path); }
template <class I> auto inspect(I& f, LoraAck& x) { return f(x.name, x.adapter, x.paused_ns); }

std::string label(const LoraCommand& x);  // "LoraLoad{pirate}"
std::string label(const LoraAck& x);      // "LoraAck{pirate, a1g1}"

}  // namespace troupe
