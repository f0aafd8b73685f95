// The file of a recording.
//
//   "TROUPETR", version (4 bytes), checksum (4), length (4): the header, encoded (bytes.h)
//   then blocks: magic (4), checksum of all that follows (4), length of the payload (4), number of records (4), time of
//   the block (8), payload. A block can be read without the ones before it.
//
// All numbers are little-endian; the checksum is CRC-32C. A file that was cut off reads up to its last
// whole block.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "actors/device/core.h"
#include "actors/dispatcher/core.h"
#include "actors/lora/core.h"
#include "actors/router/core.h"
#include "actors/scheduler/core.h"
#include "actors/spill/core.h"
#include "actors/trace/bytes.h"
#include "messages/error.h"
#include "messages/model_info.h"

namespace troupe::actors::trace {

inline constexpr char kFileMagic[8] = {'T', 'R', 'O', 'U', 'P', 'E', 'T', 'R'};
inline constexpr std::uint32_t kFileVersion = 2;
inline constexpr std::size_t kFilePrefix = 20;
inline constexpr std::uint32_t kBlockMagic = 0x4B4C4254;  // "TBLK"
inline constexpr std::size_t kBlockPrefix = 24;
inline constexpr std::uint32_t kMostPayload = 1u << 24;  // of a block, and of the header

struct DeviceConfig {
  std::uint32_t ring_slots = 0;
  TimeNs step_timeout = 0;
  std::uint32_t copy_places = 0;
  std::uint32_t prefill_slots = 0;
};

// What the cores were made with: enough to make them again.
struct CoreConfigs {
  DispatcherConfig dispatcher;
  SchedulerConfig scheduler;
  RouterConfig router;
  DeviceConfig device;
  LoraConfig lora;
  SpillConfig spill;
  ModelInfo model;
  std::uint8_t part = 0;  // of a runtime's recording: Place::part
};

struct TypeInfo {
  std::string name;
  std::uint64_t schema = 0;
};

struct Header {
  std::string build;         // the program's build id
  std::int64_t wall_ns = 0;  // when it was begun, since 1970
  bool redacted = false;
  bool from_start = true;       // false: the flight recorder had forgotten the beginning
  std::vector<TypeInfo> types;  // by RecordHead::type
  std::uint64_t configs_schema = 0;
  std::vector<std::uint8_t> configs_bytes;  // of a CoreConfigs
};

template <class I>
auto inspect(I& f, PlacementConfig& x) {
  return f(x.policy, x.affinity_bound, x.affinity_blocks);
}
template <class I>
auto inspect(I& f, SupervisionConfig& x) {
  return f(x.max_restarts, x.restart_window, x.backoff, x.max_backoff, x.start_timeout, x.report_interval, x.report_timeout,
           x.progress_timeout);
}
template <class I>
auto inspect(I& f, ReplicaSetup& x) {
  return f(x.name, x.weight, x.remote);
}
template <class I>
auto inspect(I& f, DispatcherConfig& x) {
  return f(x.max_live, x.replicas, x.placement, x.supervision, x.max_moves, x.max_commands, x.fault);
}
template <class I>
auto inspect(I& f, SchedulerConfig& x) {
  return f(x.router_incarnation, x.depth, x.max_batch, x.step_tokens, x.resume_immunity, x.spill_places, x.spill_min_blocks, x.replica,
           x.movable, x.prefill_stream, x.fault);
}
template <class I>
auto inspect(I& f, RouterConfig& x) {
  return f(x.incarnation, x.depth, x.prefix_cache, x.fault);
}
template <class I>
auto inspect(I& f, DeviceConfig& x) {
  return f(x.ring_slots, x.step_timeout, x.copy_places, x.prefill_slots);
}
template <class I>
auto inspect(I& f, LoraConfig& x) {
  return f(x.max_wait, x.lease, x.max_commands, x.policy, x.replica, x.movable, x.fault);
}
template <class I>
auto inspect(I& f, SpillConfig& x) {
  return f(x.limit_bytes, x.fault);
}
template <class I>
auto inspect(I& f, CoreConfigs& x) {
  return f(x.dispatcher, x.scheduler, x.router, x.device, x.lora, x.spill, x.model, x.part);
}
template <class I>
auto inspect(I& f, TypeInfo& x) {
  return f(x.name, x.schema);
}
template <class I>
auto inspect(I& f, Header& x) {
  return f(x.build, x.wall_ns, x.redacted, x.from_start, x.types, x.configs_schema, x.configs_bytes);
}

// A recording that lacks a setting is not replayed but diverges: who adds a field to one of these adds it to its inspect()
// and here.
static_assert(sizeof(PlacementConfig) == 12 && sizeof(SupervisionConfig) == 64 && sizeof(ReplicaSetup) == 40 &&
              sizeof(DispatcherConfig) == 128 && sizeof(SchedulerConfig) == 40 && sizeof(RouterConfig) == 12 && sizeof(LoraConfig) == 40 &&
              sizeof(SpillConfig) == 16);

// This build's, for these cores.
Header make_header(const CoreConfigs& configs, bool redacted);
// The beginning of a file.
std::vector<std::uint8_t> encode_file_start(const Header& header);
// Whether this build would have written the type in the same form.
std::uint64_t schema_of(std::uint16_t type);
std::uint64_t configs_schema();

// CRC-32C (Castagnoli; RFC 3720, appendix B.4), which CPUs have an instruction for; `by_table` works without.
std::uint32_t crc32c(const std::uint8_t* data, std::size_t size);
std::uint32_t crc32c_by_table(const std::uint8_t* data, std::size_t size);

template <class T>
void put_le(std::uint8_t* to, T x) {
  for (std::size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<std::uint8_t>(static_cast<std::uint64_t>(x) >> (8 * i));
}
template <class T>
T get_le(const std::uint8_t* from) {
  std::uint64_t x = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) x |= std::uint64_t{from[i]} << (8 * i);
  return static_cast<T>(x);
}

}  // namespace troupe::actors::trace
