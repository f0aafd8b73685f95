// Reads a recording. What it is given may be cut off, damaged or made up: it answers with what it could read and with why
// it stopped, and never with a message that is not whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/trace/format.h"
#include "actors/trace/record.h"
#include "messages/error.h"

namespace troupe::actors::trace {

// A record with its message (sent) or the one that it takes up (received: index 0, see Recording::sent).
struct Event {
  RecordHead head;
  AnyMessage message;
};

// Takes a file's bytes as they come.
class Reader {
 public:
  // Adds bytes and reads what is whole. Error: bad_file, it is not a recording, or its header is damaged.
  Result<void> feed(const std::uint8_t* data, std::size_t size);
  bool has_header() const { return header_.has_value(); }
  const Header& header() const { return *header_; }
  // None: this build's cores are made with something else than the recording's were.
  const std::optional<CoreConfigs>& configs() const { return configs_; }
  // Read since the last call, in the file's order.
  std::vector<Event> take();
  std::size_t header_bytes() const { return header_bytes_; }
  // Bytes that are no whole block yet; of a whole file: what was cut off.
  std::size_t pending() const { return bytes_.size() - at_; }
  const std::string& damage() const { return damage_; }  // why it stopped; empty: it did not
  std::uint64_t unknown() const { return unknown_; }     // messages of a type or form that this build does not know

 private:
  Result<bool> read_header();
  bool read_block();
  bool read_records(const std::uint8_t* data, std::size_t size, std::uint32_t n, TimeNs base);
  bool read_record(Decoder& d, ReadTable& table, TimeNs& time);

  std::vector<std::uint8_t> bytes_;
  std::size_t at_ = 0;
  std::size_t header_bytes_ = 0;
  std::optional<Header> header_;
  std::optional<CoreConfigs> configs_;
  std::vector<std::uint16_t> types_;  // the file's type -> ours; 0 = unknown
  std::vector<Event> events_;
  std::string damage_;
  std::uint64_t unknown_ = 0;
};

// A whole recording, in the order of time.
struct Recording {
  Header header;
  std::optional<CoreConfigs> configs;
  std::vector<Event> events;
  std::string damage;         // the file is damaged from somewhere on: how
  std::size_t cut_bytes = 0;  // at the end, of a block that was not written to its end
  std::uint64_t lost = 0;     // records for which the recorder had no room
  std::uint64_t unknown = 0;
  std::size_t bytes = 0;
  std::size_t header_bytes = 0;  // of those: cores' settings and, above all, the model's vocabulary

  // The record of sending message `seq`; null: it is not there.
  const Event* sent(std::uint64_t seq) const;
  // The receipt of it.
  const Event* received(std::uint64_t seq) const;

  std::unordered_map<std::uint64_t, std::uint32_t> sent_at, received_at;  // seq -> index of `events`
};

// Errors: io_failed; bad_file: it is no recording.
Result<Recording> read_recording(const std::string& path);
Result<Recording> parse_recording(const std::uint8_t* data, std::size_t size);

// The bytes of a file. Error: io_failed.
Result<std::vector<std::uint8_t>> read_file(const std::string& path);

}  // namespace troupe::actors::trace
