// LoRA commands to the controller, and their answers (R9). Seed names first: Rotate, LoadIntoSlot, PromoteDisk, Promote.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/error.h"
#include "messages/ids.h"
#include "messages/shared.h"

namespace troupe {

struct LoraCommand {
  enum class Kind : std::uint8_t {
    rotate,          // requests that name no adapter get `name` from now on; "" = the base model
    load_into_slot,  // the adapter in `path`, as `name`, in place of what is in `slot`
    promote_disk,    // the same in a free slot, else in the place of the adapter without users that was used longest ago
    promote,         // from the memory of another replica
    unload,
    list,
  };
  // What happens when the users of the scope have not ended within max_wait.
  enum class AtBound : std::uint8_t {
    fail,     // timed_out, and nothing has changed
    preempt,  // they are taken off the device; if the command then removes their adapter, they end with adapter_gone
  };
  Kind kind = Kind::list;
  std::string name;
  std::string path;        // load_into_slot, promote_disk: a PEFT folder
  std::uint32_t slot = 0;  // load_into_slot: 1 .. ModelInfo::max_loras
  std::string peer{};      // promote: which replica, and the adapter's name there
  std::string adapter{};
  TimeNs max_wait = 0;  // 0 = the controller's
  AtBound at_bound = AtBound::fail;
  std::string replica{};   // by its name; "" = all, one after the other, so that the others serve meanwhile
  bool roll_back = false;  // if it fails on one replica, those before it are put back as they were
};

// An adapter as it lies in a model's memory, for another replica with the same model.
struct AdapterImage {
  std::vector<std::uint8_t> bytes;
  void clear() { bytes.clear(); }
};

struct LoraEntry {
  std::string name;
  std::uint32_t slot = 0;
  AdapterRef adapter;
  std::uint32_t users = 0;  // requests that are bound to it and have not ended
  bool retired = false;     // loaded again under its name: it goes with its last user
  bool standard = false;    // of requests that name none
};

// What a command did on one of several replicas.
struct LoraOutcome {
  ReplicaRef replica;
  std::string name;  // the replica's
  Error error{};
  AdapterRef adapter{};  // as in LoraAck
  TimeNs paused_ns = 0;
  bool rolled_back = false;           // it was done here, and undone since another replica failed
  std::vector<LoraEntry> adapters{};  // list
};

// Done, or with `slot` Promoted{slot, evicted}. Beside an error: what it says in numbers.
struct LoraAck {
  std::string name;
  AdapterRef adapter;    // load_into_slot, promote_disk: where it is now
  TimeNs paused_ns = 0;  // how long requests of the scope had to wait at most
  std::uint32_t slot = 0;
  std::string evicted{};                // the adapter that was in the slot
  std::uint32_t users = 0;              // slot_in_use, timed_out: how many were left
  TimeNs waited_ns = 0;                 // for the users to end
  std::vector<LoraEntry> adapters{};    // list; of several replicas: of the first
  std::vector<LoraOutcome> replicas{};  // where there are several: each, in order. What is above is then of the last that did it
};

template <class I>
auto inspect(I& f, LoraCommand& x) {
  return f(x.kind, x.name, x.path, x.slot, x.peer, x.adapter, x.max_wait, x.at_bound, x.replica, x.roll_back);
}
template <class I>
auto inspect(I& f, LoraEntry& x) {
  return f(x.name, x.slot, x.adapter, x.users, x.retired, x.standard);
}
template <class I>
auto inspect(I& f, AdapterImage& x) {
  return f(x.bytes);
}
template <class I>
auto inspect(I& f, LoraOutcome& x) {
  return f(x.replica, x.name, x.error, x.adapter, x.paused_ns, x.rolled_back, x.adapters);
}
template <class I>
auto inspect(I& f, LoraAck& x) {
  return f(x.name, x.adapter, x.paused_ns, x.slot, x.evicted, x.users, x.waited_ns, x.adapters, x.replicas);
}

std::string label(const LoraCommand& x);   // "LoadIntoSlot{pirate}"
std::string label(const LoraEntry& x);     // "pirate a1g1 users=2"
std::string label(const AdapterImage& x);  // "image{1024 bytes}"
std::string label(const LoraOutcome& x);   // "r0.1 ok"
std::string label(const LoraAck& x);       // "LoraAck{pirate, a1g1}"

}  // namespace troupe
