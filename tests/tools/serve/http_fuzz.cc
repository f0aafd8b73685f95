// libFuzzer: bytes of a connection, in pieces (the first byte is their size), are refused with a status or make requests
// that are routed or refused.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tools/serve/request_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::serve;
  if (size == 0) return 0;
  const std::size_t piece = data[0] + 1u;
  RequestReader reader(512, 1024);
  for (std::size_t at = 1; at < size;) {
    const auto room = reader.room();
    const std::size_t n = std::min({piece, size - at, room.size()});
    if (n == 0) std::abort();  // parse() takes in, or refuses, before it is full
    std::memcpy(room.data(), data + at, n);
    reader.arrived(n);
    at += n;
    for (;;) {
      const auto status = reader.parse();
      if (!status) {
        if (status.error().status < 400 || status.error().message.empty()) std::abort();
        return 0;
      }
      if (status.value() == RequestReader::Status::body) (void)reader.wants_continue();
      if (status.value() != RequestReader::Status::whole) break;
      const HttpRequest request = reader.take();
      (void)route(request);
      (void)authorize(request, Access::key, {"key"}, false);
    }
  }
  return 0;
}
