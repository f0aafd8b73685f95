#include "actors/trace/reader.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

namespace troupe::actors::trace {
namespace {

constexpr std::size_t kMostTypes = 1024;
constexpr TimeNs kLatest = TimeNs{1} << 61;  // no machine runs that long: who looks at recordings may add and subtract

Error bad(std::string what) { return Error{ErrorCode::bad_file, std::move(what)}; }

bool get_seq(Decoder& d, std::uint64_t& seq) {
  std::uint64_t base = 0, count = 0;
  if (d.varint(base) || d.varint(count) || base >= std::uint64_t{1} << 24 || count >= std::uint64_t{1} << 40) return false;
  seq = base << 40 | count;
  return true;
}

bool get_party(Decoder& d, Party& p) {
  std::uint64_t raw = 0;
  if (d.varint(raw) || raw >= std::uint64_t{1} << 24) return false;
  p = {static_cast<Sender>(raw >> 8), static_cast<std::uint16_t>(raw & 0xFF)};
  return true;
}

bool get_u32(Decoder& d, std::uint32_t& x) { return !d.get(x); }

// A message of our type `type` from the rest of `d`, which must end with it.
bool get_message(Decoder& d, std::uint16_t type, AnyMessage& out) {
  const auto read = [&]<class M>() {
    M& m = out.emplace<M>();
    return !d.get(m) && d.left() == 0 && whole(m);
  };
#define TROUPE_READ(M) \
  if (type == kTypeOf<M>) return read.template operator()<M>();
  TROUPE_MESSAGES(TROUPE_READ)
#undef TROUPE_READ
  return type == kTypeOf<SetTimer> && read.operator()<SetTimer>();
}

void set_ctx(AnyMessage& m, const TraceCtx& ctx) {
  std::visit(
      [&](auto& x) {
        if constexpr (requires { x.ctx; }) x.ctx = ctx;
      },
      m);
}

}  // namespace

Result<void> Reader::feed(const std::uint8_t* data, std::size_t size) {
  if (at_ > 0) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ = 0;
  }
  bytes_.insert(bytes_.end(), data, data + size);
  if (!header_) {
    TROUPE_TRY(const bool there, read_header());
    if (!there) return success();
  }
  while (damage_.empty() && read_block()) {
  }
  return success();
}

Result<bool> Reader::read_header() {
  const std::size_t n = std::min(bytes_.size(), sizeof kFileMagic);
  if (std::memcmp(bytes_.data(), kFileMagic, n) != 0) return bad("this is no recording of Troupe's: it does not begin like one");
  if (bytes_.size() < kFilePrefix) return false;
  const auto version = get_le<std::uint32_t>(bytes_.data() + 8);
  if (version != kFileVersion) {
    return bad("the recording has format " + std::to_string(version) + " and this program reads " + std::to_string(kFileVersion) +
               "; use the program that made it");
  }
  const auto size = get_le<std::uint32_t>(bytes_.data() + 16);
  if (size > kMostPayload) return bad("the recording's header says that it has " + std::to_string(size) + " bytes: it is damaged");
  if (bytes_.size() < kFilePrefix + size) return false;
  const std::uint8_t* payload = bytes_.data() + kFilePrefix;
  if (crc32c(payload, size) != get_le<std::uint32_t>(bytes_.data() + 12))
    return bad("the recording's header is damaged: its checksum is wrong");
  Header header;
  Decoder d(payload, size);
  if (d.get(header) || d.left() != 0 || header.types.size() > kMostTypes) return bad("the recording's header cannot be decoded");
  types_.assign(header.types.size(), 0);
  for (std::size_t i = 0; i < types_.size(); ++i) {
    for (std::uint16_t t = 1; t < kTypes; ++t) {
      if (header.types[i].name == type_name(t) && header.types[i].schema == schema_of(t)) types_[i] = t;
    }
  }
  if (header.configs_schema == configs_schema()) {
    CoreConfigs configs;
    Decoder c(header.configs_bytes.data(), header.configs_bytes.size());
    if (c.get(configs) || c.left() != 0) return bad("the recording's header cannot be decoded");
    configs_ = std::move(configs);
  }
  header.configs_bytes.clear();
  header_ = std::move(header);
  at_ = header_bytes_ = kFilePrefix + size;
  return true;
}

bool Reader::read_block() {
  const std::size_t left = bytes_.size() - at_;
  if (left < kBlockPrefix) return false;
  const std::uint8_t* p = bytes_.data() + at_;
  const auto size = get_le<std::uint32_t>(p + 8);
  if (get_le<std::uint32_t>(p) != kBlockMagic || size > kMostPayload) {
    damage_ = "a block does not begin like one";
    return false;
  }
  if (left < kBlockPrefix + size) return false;
  if (crc32c(p + 8, kBlockPrefix - 8 + size) != get_le<std::uint32_t>(p + 4)) {
    damage_ = "the checksum of a block is wrong";
    return false;
  }
  if (!read_records(p + kBlockPrefix, size, get_le<std::uint32_t>(p + 12), get_le<std::int64_t>(p + 16))) {
    damage_ = "a block cannot be decoded";
    return false;
  }
  at_ += kBlockPrefix + size;
  return true;
}

bool Reader::read_records(const std::uint8_t* data, std::size_t size, std::uint32_t n, TimeNs base) {
  Decoder d(data, size);
  ReadTable table;
  TimeNs time = base;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (!read_record(d, table, time)) return false;
  }
  return d.left() == 0;
}

bool Reader::read_record(Decoder& d, ReadTable& table, TimeNs& time) {
  Event e;
  RecordHead& h = e.head;
  std::int64_t step = 0;
  if (d.get(h.kind)) return false;
  if (h.kind == RecordKind::lost) {
    if (d.varint(h.seq)) return false;
  } else if ((h.kind != RecordKind::sent && h.kind != RecordKind::received) || !get_seq(d, h.seq)) {
    return false;
  }
  if (d.zigzag(step)) return false;
  time = static_cast<TimeNs>(static_cast<std::uint64_t>(time) + static_cast<std::uint64_t>(step));
  if (time < 0 || time > kLatest) return false;
  h.time = time;
  std::uint32_t type = 0;
  if (h.kind != RecordKind::lost) {
    if (!get_u32(d, h.thread) || (h.kind == RecordKind::sent && !get_party(d, h.from)) || !get_party(d, h.to) || !get_u32(d, type))
      return false;
    if (type >= types_.size()) return false;
    h.type = types_[type];
  }
  if (h.kind == RecordKind::sent) {
    std::uint64_t size = 0, payloads = 0;
    if (!get_seq(d, h.cause) || d.get(h.request) || d.get(h.ticket) || d.varint(payloads) || d.varint(size) || size > d.left())
      return false;
    Decoder body(d.at(), size, &table);
    (void)d.skip(size);
    if (h.type == 0) {
      ++unknown_;
      table.skip(payloads);
    } else {
      if (!get_message(body, h.type, e.message)) return false;
      set_ctx(e.message, {h.seq, h.cause});
    }
  }
  events_.push_back(std::move(e));
  return true;
}

std::vector<Event> Reader::take() { return std::exchange(events_, {}); }

const Event* Recording::sent(std::uint64_t seq) const {
  const auto it = sent_at.find(seq);
  return it == sent_at.end() ? nullptr : &events[it->second];
}

const Event* Recording::received(std::uint64_t seq) const {
  const auto it = received_at.find(seq);
  return it == received_at.end() ? nullptr : &events[it->second];
}

Result<Recording> parse_recording(const std::uint8_t* data, std::size_t size) {
  Reader reader;
  TROUPE_TRY(reader.feed(data, size));
  if (!reader.has_header()) return bad("the recording is cut off within its header");
  Recording r;
  r.header = reader.header();
  r.configs = reader.configs();
  std::vector<Event> events = reader.take();
  r.damage = reader.damage();
  r.cut_bytes = reader.pending();
  r.unknown = reader.unknown();
  r.bytes = size;
  r.header_bytes = reader.header_bytes();
  // Blocks take one sender's records after the other's; a sender's own are in its order, which equal times keep. Sorted by
  // index: events are large.
  std::vector<std::uint32_t> order(events.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return events[a].head.time < events[b].head.time; });
  r.events.reserve(events.size());
  for (const std::uint32_t i : order) r.events.push_back(std::move(events[i]));
  r.sent_at.reserve(events.size() / 2);
  r.received_at.reserve(events.size() / 2);
  for (std::uint32_t i = 0; i < r.events.size(); ++i) {
    RecordHead& h = r.events[i].head;
    if (h.kind == RecordKind::lost) r.lost += h.seq;
    if (h.kind == RecordKind::sent) r.sent_at.emplace(h.seq, i);
    if (h.kind == RecordKind::received) r.received_at.emplace(h.seq, i);
  }
  for (Event& e : r.events) {
    if (e.head.kind != RecordKind::received) continue;
    const Event* sent = r.sent(e.head.seq);
    if (sent == nullptr) continue;
    e.head.from = sent->head.from;
    e.head.cause = sent->head.cause;
    e.head.request = sent->head.request;
    e.head.ticket = sent->head.ticket;
  }
  return r;
}

Result<std::vector<std::uint8_t>> read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  std::vector<std::uint8_t> bytes;
  std::uint8_t piece[64 * 1024];
  if (file) {
    for (std::size_t n; (n = std::fread(piece, 1, sizeof piece, file.get())) > 0;) bytes.insert(bytes.end(), piece, piece + n);
  }
  if (!file || std::ferror(file.get()) != 0) return Error{ErrorCode::io_failed, "cannot read " + path + ": " + std::strerror(errno)};
  return bytes;
}

Result<Recording> read_recording(const std::string& path) {
  TROUPE_TRY(auto bytes, read_file(path));
  auto r = parse_recording(bytes.data(), bytes.size());
  if (!r) return Error{r.error().code, path + ": " + r.error().what};
  return r;
}

}  // namespace troupe::actors::trace
