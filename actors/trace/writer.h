// Makes blocks of records. One thread at a time; allocates nothing once its buffers have grown.
#pragma once

#include <cstdint>
#include <functional>

#include "actors/trace/format.h"
#include "actors/trace/lane.h"
#include "actors/trace/record.h"

namespace troupe::actors::trace {

class Writer {
 public:
  using Sink = std::function<void(const std::uint8_t* block, std::size_t size)>;
  static constexpr std::size_t kBlockBytes = 64 * 1024;

  // Each whole block goes to `sink`. redact_key: as Encoder's.
  explicit Writer(Sink sink, std::uint64_t redact_key = 0);

  // A message that was sent: fills in type, request and ticket.
  template <class M>
  void sent(RecordHead head, const M& message) {
    head.kind = RecordKind::sent;
    head.type = kTypeOf<M>;
    correlate(message, head);
    body_.clear();
    const std::size_t known = table_.size();
    Encoder encoder(body_, &table_, key_);
    encoder.put(message);
    new_payloads_ = table_.size() - known;
    if (fault_ == ErrorCode::none) {
      const ErrorCode code = error_of(message);
      if (code == ErrorCode::device_lost || code == ErrorCode::internal) fault_ = code;
    }
    append(head);
  }
  void received(const RecordHead& head);
  void lost(std::uint64_t records, TimeNs time);
  // Ends the block that is open, if any.
  void flush();

  // Whether a message told of a lost device or a broken invariant since the last call.
  ErrorCode take_fault() { return std::exchange(fault_, ErrorCode::none); }
  std::uint64_t messages() const { return messages_; }
  std::uint64_t bytes() const { return bytes_; }  // of all blocks

 private:
  void begin(TimeNs time);
  void append(const RecordHead& head);
  void end_record();

  const Sink sink_;
  const std::uint64_t key_;
  Bytes block_;
  Bytes body_;
  SharedTable table_;
  std::size_t new_payloads_ = 0;  // of the message in body_
  TimeNs base_ = 0;
  TimeNs last_ = 0;
  std::uint32_t records_ = 0;
  std::uint64_t messages_ = 0;
  std::uint64_t bytes_ = 0;
  ErrorCode fault_ = ErrorCode::none;
};

// How a lane's consumer writes a message of type M.
template <class M>
inline constexpr Lane::Ops kLaneOps = {
    [](Writer& writer, RecordHead& head, const void* message) { writer.sent(head, *static_cast<const M*>(message)); },
    [](void* message) { static_cast<M*>(message)->~M(); },
};

}  // namespace troupe::actors::trace
