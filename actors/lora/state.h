// The LoRA controller's books. Included by its .cc files only.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "actors/lora/core.h"

namespace troupe::actors {

struct LoraCore::State {
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  struct Slot {
    std::string name;
    AdapterRef ref;  // slot 0: nothing is here
    std::uint32_t users = 0;
    std::uint64_t used = 0;  // when it was bound to last, in counts of `clock`
    bool retired = false;
    std::uint64_t command = 0;  // that loaded it
    std::uint32_t reads = 0;    // FetchAdapter of it that are under way: it stays
    bool in_use() const { return users + reads > 0; }
  };
  struct Bound {
    std::uint32_t slot = kNone;  // in `slots`; kNone: the base model
    AdapterRef ref;
  };
  struct Waiting {
    Admit admit;
    TimeNs since = 0;
    TimeNs deadline = 0;  // 0 = none
  };
  struct Command {
    std::uint64_t id = 0;
    LoraCommand c;
    Shared<AdapterImage> image{};
  };
  struct Read {
    std::uint64_t id = 0;
    AdapterRef ref;
  };
  using Item = std::variant<Waiting, Command, Drain>;
  struct Running {
    enum class Phase : std::uint8_t { loading, waiting, changing };
    Phase phase = Phase::loading;
    std::uint64_t id = 0;
    LoraCommand c;
    Shared<AdapterImage> image{};
    std::uint32_t slot = kNone;  // in `slots`, once it is chosen
    AdapterRef fresh;            // what is loaded; slot 0: unload
    TimeNs start = 0;
    TimeNs bound = 0;
    TimeNs ready = 0;        // when all that comes before the change was done
    TimeNs quiet_since = 0;  // when the last user had ended
    bool preempting = false;
    bool withdrawn = false;
    bool waited = false;  // counted in the stats
  };

  LoraConfig config;
  std::vector<Slot> slots;
  std::vector<std::uint32_t> free_memory;                          // slots of the model's memory
  std::vector<std::pair<std::uint64_t, std::uint32_t>> abandoned;  // loads that have not returned: command, memory
  std::uint32_t generation = 0;
  std::string standard;  // of requests that name none; "" = the base model
  std::uint64_t clock = 0;
  std::unordered_map<std::uint64_t, Bound> bound;  // by generation of the request; lookup only
  std::deque<Item> queue;                          // what could not be handled yet, in the order of arrival
  std::optional<Running> running;
  std::vector<Read> reads;  // that the loader has not answered
  TimeNs armed = 0;
  bool draining = false;
  LoraStats stats;

  Slot* find(const std::string& name);  // not retired
  Slot* find_command(std::uint64_t id);
  bool affects(const LoraCommand& c, std::uint32_t slot, const std::string& name) const;
  bool blocked(const Waiting& w, const std::vector<const Command*>& before) const;
  void bind(const Waiting& w, TimeNs now, LoraOutbox& out);
  std::optional<std::uint32_t> choose(const LoraCommand& c) const;
  std::optional<std::uint32_t> draining_slot(const LoraCommand& c) const;
  bool quiet() const;
  std::uint32_t users() const;  // of what must go

  void start(Command&& command, TimeNs now, LoraOutbox& out);
  void proceed(TimeNs now, LoraOutbox& out);
  void change(TimeNs now, LoraOutbox& out);
  void complete(TimeNs now, LoraOutbox& out);
  void fail(ErrorCode code, std::string what, TimeNs now, LoraOutbox& out);
  void pump(TimeNs now, LoraOutbox& out);
  void arm(TimeNs now, LoraOutbox& out);
  LoraAck list() const;
};

}  // namespace troupe::actors
