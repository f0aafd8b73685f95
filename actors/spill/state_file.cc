#include "actors/spill/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace troupe::actors {

namespace {

constexpr char kMagic[] = "TRPSTATE";
constexpr std::size_t kMagicBytes = 8;
constexpr std::size_t kPayloadCrcAt = 72, kHeaderCrcAt = 76;

template <class T>
void put(StateHeaderBytes& to, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) to[at + i] = static_cast<std::byte>(value >> (8 * i));
}

template <class T>
T get(std::span<const std::byte> from, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(std::to_integer<std::uint8_t>(from[at + i])) << (8 * i);
  return value;
}

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  StateCrc crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

Error bad(std::string what) { return Error{ErrorCode::bad_file, "a saved sequence " + std::move(what) + "; it is computed again"}; }

}  // namespace

std::uint64_t model_id(const ModelInfo& m) {
  std::uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a, 64 bits
  const auto add = [&](std::string_view bytes) {
    for (const char c : bytes) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001B3u;
    hash = (hash ^ 0xFFu) * 0x100000001B3u;  // where one text ends and the next begins
  };
  add(m.name), add(m.architecture), add(m.arithmetic_id);
  add(fmt::format("{} {} {} {}", m.vocab_size, m.n_layers, m.context_length, m.block_size));
  return hash;
}

StateHeaderBytes encode(const StateHeader& h) {
  StateHeaderBytes out{};
  std::memcpy(out.data(), kMagic, kMagicBytes);
  put(out, 8, kStateVersion);
  put(out, 12, static_cast<std::uint32_t>(kStateHeaderBytes));
  put(out, 16, h.seq.incarnation);
  put(out, 20, h.n_parts);
  put(out, 24, h.seq.number);
  put(out, 32, h.positions);
  put(out, 36, h.first_block);
  put(out, 40, h.n_blocks);
  put(out, 44, h.block_size);
  put(out, 48, h.block_bytes);
  put(out, 56, h.payload_bytes());
  put(out, 64, h.model);
  put(out, kPayloadCrcAt, h.payload_crc);
  put(out, kHeaderCrcAt, crc_of(std::span(out).first(kHeaderCrcAt)));
  return out;
}

bool has_magic(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagicBytes && std::memcmp(bytes.data(), kMagic, kMagicBytes) == 0;
}

Result<std::uint32_t> check_header(std::span<const std::byte> bytes, std::uint64_t file_bytes, const StateHeader& expected) {
  if (bytes.size() < kStateHeaderBytes) return bad(fmt::format("has {} bytes, fewer than its header", bytes.size()));
  if (!has_magic(bytes)) return bad("does not begin as one");
  if (const auto version = get<std::uint32_t>(bytes, 8); version != kStateVersion) return bad(fmt::format("has version {}", version));
  if (get<std::uint32_t>(bytes, kHeaderCrcAt) != crc_of(bytes.first(kHeaderCrcAt))) return bad("has a damaged header");
  StateHeader same = expected;
  same.payload_crc = get<std::uint32_t>(bytes, kPayloadCrcAt);
  const StateHeaderBytes right = encode(same);
  if (get<std::uint64_t>(bytes, 64) != expected.model) return bad("is of another model or another arithmetic");
  if (!std::equal(right.begin(), right.end(), bytes.begin())) return bad("is of another sequence, or of another length");
  if (file_bytes != kStateHeaderBytes + expected.payload_bytes())
    return bad(fmt::format("has {} bytes in place of {}", file_bytes, kStateHeaderBytes + expected.payload_bytes()));
  return same.payload_crc;
}

std::string state_file_name(SeqId seq) { return fmt::format("{}-{}.kv", seq.incarnation, seq.number); }

bool is_state_file_name(const std::string& name) {
  std::string_view rest = name;
  if (rest.ends_with(".part")) rest.remove_suffix(5);
  if (!rest.ends_with(".kv")) return false;
  rest.remove_suffix(3);
  const auto dash = rest.find('-');
  if (dash == std::string_view::npos || dash == 0 || dash + 1 == rest.size()) return false;
  const auto digits = [](std::string_view x) { return std::all_of(x.begin(), x.end(), [](char c) { return c >= '0' && c <= '9'; }); };
  return digits(rest.substr(0, dash)) && digits(rest.substr(dash + 1));
}

}  // namespace troupe::actors
