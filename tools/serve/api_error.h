// What a client of `troupe serve` is told when something is wrong: an HTTP status and a body in OpenAI's shape,
//   {"error": {"message": …, "type": …, "param": … | null, "code": … | null}}
// Values; any thread.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "messages/error.h"

namespace troupe::serve {

struct ApiError {
  int status = 500;
  std::string type = "server_error";
  std::string message;
  std::string param;                            // the field of the body; empty: none in particular
  std::string code;                             // for programs; empty: null
  std::chrono::milliseconds retry_after{1000};  // 429, 503: when it is worth another try
  std::string allow{};                          // 405: the methods that are served
};
template <class T>
using ApiResult = BOOST_OUTCOME_V2_NAMESPACE::basic_result<T, ApiError, BOOST_OUTCOME_V2_NAMESPACE::policy::all_narrow>;

ApiError bad_request(std::string message, std::string param = "", std::string code = "");  // 400
ApiError not_found(std::string message, std::string code = "");                            // 404

// An error of the runtime, or of what stands before it. overloaded: 429, to be tried again after a while.
ApiError from_runtime(const Error& error);

// What a client sent may be quoted in it, in any bytes; it is JSON all the same.
std::string to_body(const ApiError& error);

// `bytes` with each byte that is no part of a character as U+FFFD.
std::string to_utf8(std::string_view bytes);

}  // namespace troupe::serve
