// Records what a World's actors send and take up, as a runtime's recorder does, into memory.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/trace/format.h"
#include "actors/trace/writer.h"

namespace troupe::sim {

class SimRecorder {
 public:
  SimRecorder() : writer_([this](const std::uint8_t* block, std::size_t size) { bytes_.insert(bytes_.end(), block, block + size); }) {}

  // Nothing is recorded before.
  void begin(const actors::trace::CoreConfigs& configs) {
    on_ = true;
    bytes_ = actors::trace::encode_file_start(actors::trace::make_header(configs, false));
  }
  // What is sent from here on has no cause in an actor.
  void at_the_edge() { handling_ = 0; }

  // Numbers the message and records it.
  template <class M>
  void sent(actors::Sender from, actors::Sender to, TimeNs now, M& m) {
    if (!on_) return;
    actors::trace::RecordHead head;
    head.from = {from, 0};
    head.to = {std::is_same_v<M, Deliver> ? actors::Sender::delivery : to, 0};
    head.seq = actors::seq_base(head.from) | ++sent_[static_cast<int>(from)];
    head.cause = handling_;
    head.time = now;
    if constexpr (requires { m.ctx; }) m.ctx = {head.seq, head.cause};
    writer_.sent(head, m);
  }
  template <class M>
  void received(actors::Sender to, TimeNs now, const M& m) {
    if (!on_) return;
    actors::trace::RecordHead head;
    head.kind = actors::trace::RecordKind::received;
    head.seq = handling_ = m.ctx.seq;
    head.time = now;
    head.to = {std::is_same_v<M, Deliver> ? actors::Sender::delivery : to, 0};
    head.type = actors::trace::kTypeOf<M>;
    writer_.received(head);
  }
  // The bytes of the file so far.
  const std::vector<std::uint8_t>& bytes() {
    writer_.flush();
    return bytes_;
  }

 private:
  bool on_ = false;
  std::vector<std::uint8_t> bytes_;
  actors::trace::Writer writer_;
  std::uint64_t sent_[64] = {};  // by sender
  std::uint64_t handling_ = 0;   // the message that is being handled
};

}  // namespace troupe::sim
