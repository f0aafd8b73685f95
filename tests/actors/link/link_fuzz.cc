// libFuzzer: the bytes of a connection, either way, after TLS. They are cut, read and given to the core of that side: whatever
// comes ends the connection or is a message that can be written again; a core puts out no more than a few messages for one.
#include <cstdlib>

#include "actors/link/codec.h"
#include "actors/link/host_core.h"
#include "actors/link/remote_core.h"

namespace {

using namespace troupe;
using namespace troupe::actors::link;

constexpr std::size_t kMostOut = 40;  // a link that ends cancels its requests: max_live below, and what goes with it

template <class Box>
void check(Box& out) {
  if (out.items().size() > kMostOut) std::abort();
  out.clear();
}

ModelInfo model() {
  ModelInfo m;
  m.vocab_size = 64;
  m.context_length = 64;
  m.kv_blocks = 8;
  return m;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Side sender = (data[0] & 1) != 0 ? Side::runtime : Side::node;
  const std::size_t piece = 1 + (data[0] >> 1);
  FrameCutter cutter(&most_bytes);
  FrameReader reader(sender);
  HostConfig host_config;
  host_config.max_live = 8;
  host_config.model = model();
  HostCore host(host_config);
  HostOutbox host_out;
  RemoteConfig remote_config;
  remote_config.owner = 1;
  RemoteCore remote(remote_config);
  RemoteOutbox remote_out;
  TimeNs now = 0;
  remote.on(StartReplica{{}, {0, 1}}, now, remote_out);
  remote.on(Connected{1}, now, remote_out);
  for (std::size_t at = 1; at < size; at += piece) {
    cutter.put({data + at, std::min(piece, size - at)});
    for (;;) {
      const auto frame = cutter.next();
      if (!frame) return 0;
      if (!frame.value()) break;
      auto message = reader.read(*frame.value());
      if (!message) {
        if (message.error().what.empty()) std::abort();
        return 0;
      }
      FrameWriter writer;
      std::visit([&](const auto& m) { (void)writer.frame(m); }, message.value());
      now += 1'000'000;
      if (sender == Side::runtime) {
        host.on(1, std::move(message.value()), now, host_out);
        host.on(Tick{}, now, host_out);
        check(host_out);
      } else {
        remote.on(1, std::move(message.value()), now, remote_out);
        remote.on(Tick{}, now, remote_out);
        check(remote_out);
      }
    }
  }
  return 0;
}
