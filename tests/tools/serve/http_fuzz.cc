// libFuzzer: bytes of a connection, in pieces (the first byte is their size), are refused with a status or make requests
// that are routed or refused; what is refused has a reply that is JSON.
#include <boost/json/parse.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tools/serve/request_reader.h"

namespace {

void check(const troupe::serve::ApiError& error) {
  if (error.status < 400 || error.message.empty()) std::abort();
  boost::json::error_code bad;
  (void)boost::json::parse(to_body(error), bad);
  if (bad) std::abort();
}

}  // namespace

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
        check(status.error());
        return 0;
      }
      if (status.value() == RequestReader::Status::body) (void)reader.wants_continue();
      if (status.value() != RequestReader::Status::whole) break;
      const HttpRequest request = reader.take();
      if (const auto routed = route(request); !routed) check(routed.error());
      (void)authorize(request, Access::key, {"key"}, false);
    }
  }
  return 0;
}
