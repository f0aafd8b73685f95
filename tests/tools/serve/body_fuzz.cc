// libFuzzer: the body of an endpoint (the first byte chooses which) is either refused with a status, a reason and a
// reply that is JSON, or read.
#include <boost/json/parse.hpp>

#include <cstdlib>

#include "tools/serve/api_request.h"

namespace {

template <class T>
void check(const troupe::serve::ApiResult<T>& read) {
  if (read) return;
  if (read.error().status != 400 || read.error().message.empty()) std::abort();
  boost::json::error_code error;
  (void)boost::json::parse(to_body(read.error()), error);
  if (error) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::serve;
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      check(parse_generate(Api::completions, body));
      break;
    case 1:
      check(parse_generate(Api::chat, body));
      break;
    case 2:
      check(parse_tokenize(body));
      break;
    case 3:
      check(parse_lora(body));
      break;
    default:
      check(parse_detokenize(body));
      break;
  }
  return 0;
}
