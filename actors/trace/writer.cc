#include "actors/trace/writer.h"

#include <utility>

namespace troupe::actors::trace {
namespace {

std::uint64_t code(Party p) { return std::uint64_t{static_cast<std::uint16_t>(p.sender)} << 8 | p.index; }

void put_seq(Bytes& out, std::uint64_t seq) {
  out.varint(seq >> 40);
  out.varint(count_of(seq));
}

}  // namespace

Writer::Writer(Sink sink, std::uint64_t redact_key) : sink_(std::move(sink)), key_(redact_key) {}

void Writer::begin(TimeNs time) {
  if (records_ != 0) return;
  std::uint8_t prefix[kBlockPrefix] = {};
  block_.clear();
  block_.raw(prefix, sizeof prefix);
  base_ = last_ = time;
}

void Writer::append(const RecordHead& head) {
  begin(head.time);
  block_.byte(static_cast<std::uint8_t>(head.kind));
  put_seq(block_, head.seq);
  block_.zigzag(head.time - last_);
  last_ = head.time;
  block_.varint(head.thread);
  block_.varint(code(head.from));
  block_.varint(code(head.to));
  block_.varint(head.type);
  put_seq(block_, head.cause);
  Encoder encoder(block_);
  encoder.put(head.request);
  encoder.put(head.ticket);
  block_.varint(new_payloads_);
  block_.varint(body_.size());
  block_.raw(body_.data(), body_.size());
  ++messages_;
  end_record();
}

void Writer::received(const RecordHead& head) {
  begin(head.time);
  block_.byte(static_cast<std::uint8_t>(RecordKind::received));
  put_seq(block_, head.seq);
  block_.zigzag(head.time - last_);
  last_ = head.time;
  block_.varint(head.thread);
  block_.varint(code(head.to));
  block_.varint(head.type);
  end_record();
}

void Writer::lost(std::uint64_t records, TimeNs time) {
  begin(time);
  block_.byte(static_cast<std::uint8_t>(RecordKind::lost));
  block_.varint(records);
  block_.zigzag(time - last_);
  last_ = time;
  end_record();
}

void Writer::end_record() {
  ++records_;
  if (block_.size() >= kBlockBytes) flush();
}

void Writer::flush() {
  if (records_ == 0) return;
  std::uint8_t* p = block_.data();
  put_le(p, kBlockMagic);
  put_le(p + 8, static_cast<std::uint32_t>(block_.size() - kBlockPrefix));
  put_le(p + 12, records_);
  put_le(p + 16, base_);
  put_le(p + 4, crc32c(p + 8, block_.size() - 8));
  bytes_ += block_.size();
  sink_(p, block_.size());
  records_ = 0;
  table_.clear();
}

}  // namespace troupe::actors::trace
