#include "actors/trace/format.h"

#include <elf.h>
#include <link.h>

#include <boost/crc.hpp>

#include <chrono>
#include <cstring>

#include "actors/trace/record.h"

namespace troupe::actors::trace {
namespace {

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(const std::uint8_t* data, std::size_t size) {
  std::uint64_t crc = 0xFFFFFFFF;
  for (; size >= 8; data += 8, size -= 8) {
    std::uint64_t eight;
    std::memcpy(&eight, data, 8);
    crc = __builtin_ia32_crc32di(crc, eight);
  }
  auto rest = static_cast<std::uint32_t>(crc);
  for (; size > 0; ++data, --size) rest = __builtin_ia32_crc32qi(rest, *data);
  return ~rest;
}
#endif

// The linker's build id of the program, in hexadecimal; empty if it was linked without.
std::string build_id() {
  std::string id;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          if (segment.p_type != PT_NOTE) continue;
          const auto* at = reinterpret_cast<const unsigned char*>(info->dlpi_addr + segment.p_vaddr);
          const auto* end = at + segment.p_memsz;
          while (at + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) note;
            std::memcpy(&note, at, sizeof note);
            const auto* text = at + sizeof note + (note.n_namesz + 3) / 4 * 4;
            if (note.n_type == NT_GNU_BUILD_ID) {
              static constexpr char kHex[] = "0123456789abcdef";
              for (unsigned k = 0; k < note.n_descsz; ++k) {
                *static_cast<std::string*>(out) += kHex[text[k] >> 4];
                *static_cast<std::string*>(out) += kHex[text[k] & 15];
              }
              return 1;
            }
            at = text + (note.n_descsz + 3) / 4 * 4;
          }
        }
        return 1;  // the program itself comes first; its libraries do not count
      },
      &id);
  return id;
}

}  // namespace

std::uint64_t schema_of(std::uint16_t type) {
#define TROUPE_SCHEMA(M) \
  if (type == kTypeOf<M>) return Schema::of<M>();
  TROUPE_MESSAGES(TROUPE_SCHEMA)
#undef TROUPE_SCHEMA
  return type == kTypeOf<SetTimer> ? Schema::of<SetTimer>() : 0;
}

std::uint64_t configs_schema() { return Schema::of<CoreConfigs>(); }

Header make_header(const CoreConfigs& configs, bool redacted) {
  Header h;
  h.build = build_id();
  h.wall_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  h.redacted = redacted;
  for (std::uint16_t i = 0; i < kTypes; ++i) h.types.push_back({type_name(i), schema_of(i)});
  h.configs_schema = configs_schema();
  Bytes bytes;
  Encoder(bytes).put(configs);
  h.configs_bytes.assign(bytes.data(), bytes.data() + bytes.size());
  return h;
}

std::vector<std::uint8_t> encode_file_start(const Header& header) {
  Bytes payload;
  Encoder(payload).put(header);
  std::vector<std::uint8_t> out(kFilePrefix);
  std::memcpy(out.data(), kFileMagic, sizeof kFileMagic);
  put_le(out.data() + 8, kFileVersion);
  put_le(out.data() + 12, crc32c(payload.data(), payload.size()));
  put_le(out.data() + 16, static_cast<std::uint32_t>(payload.size()));
  out.insert(out.end(), payload.data(), payload.data() + payload.size());
  return out;
}

std::uint32_t crc32c(const std::uint8_t* data, std::size_t size) {
#if defined(__x86_64__)
  static const bool instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (instruction) return crc32c_by_instruction(data, size);
#endif
  return crc32c_by_table(data, size);
}

std::uint32_t crc32c_by_table(const std::uint8_t* data, std::size_t size) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(data, size);
  return crc.checksum();
}

}  // namespace troupe::actors::trace
