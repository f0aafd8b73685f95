// Messages to frames and back (messages.h says in which form).
//
// What is decoded may come from anybody who has a certificate: besides its form, everything that a receiver uses as an index, a
// range or one of a list is checked here (enumerators, parts of texts, missing payloads), so that actors may take it as they
// take what comes from an actor next door. What a request asks for is validated where it is admitted.
//
// One side of one connection each, and their threads.
#pragma once

#include <cstdint>
#include <span>

#include "actors/link/frame.h"
#include "actors/link/messages.h"
#include "actors/trace/bytes.h"

namespace troupe::actors::link {

enum class Side : std::uint8_t { runtime, node };

class FrameWriter {
 public:
  // The frame, valid until the next.
  template <class M>
  std::span<const std::uint8_t> frame(const M& message) {
    begin(type_of<M>());
    trace::Encoder(bytes_).put(message);
    return end();
  }

 private:
  void begin(std::uint8_t type);
  std::span<const std::uint8_t> end();
  trace::Bytes bytes_;
  std::uint64_t number_ = 0;
};

class FrameReader {
 public:
  explicit FrameReader(Side sender) : sender_(sender) {}

  // bad_file: it is no message, none that this sender may send, or not the next one. The first one of a runtime must be Hello.
  // unsupported: a Hello or a first frame of another version.
  Result<LinkMessage> read(const Frame& frame);

 private:
  Side sender_;
  std::uint64_t number_ = 0;
};

// Equal for equal vocabularies, texts and all.
std::uint64_t token_hash(const Shared<TokenTable>& tokens);

// The parts of a message that its receiver relies on; an empty text: they are as they should be.
std::string fault_of(const LinkMessage& message);

}  // namespace troupe::actors::link
