#include "tools/serve/api_error.h"

#include <boost/json.hpp>

#include "device/models/utf8.h"

namespace troupe::serve {

namespace json = boost::json;

ApiError bad_request(std::string message, std::string param, std::string code) {
  return {400, "invalid_request_error", std::move(message), std::move(param), std::move(code)};
}

ApiError not_found(std::string message, std::string code) {
  return {404, "invalid_request_error", std::move(message), "", std::move(code)};
}

ApiError from_runtime(const Error& error) {
  ApiError out;
  out.message = error.what;
  out.code = name(error.code);
  switch (error.code) {
    case ErrorCode::bad_request:
    case ErrorCode::unsupported:
    case ErrorCode::bad_adapter:
    case ErrorCode::rank_too_large:
      out.status = 400;
      out.type = "invalid_request_error";
      break;
    case ErrorCode::not_found:
    case ErrorCode::unknown_adapter:
    case ErrorCode::adapter_gone:
      out.status = 404;
      out.type = "invalid_request_error";
      break;
    case ErrorCode::slot_in_use:
    case ErrorCode::timed_out:
      out.status = 409;
      out.type = "invalid_request_error";
      break;
    case ErrorCode::overloaded:
      out.status = 429;
      out.type = "rate_limit_error";
      break;
    case ErrorCode::closed:
    case ErrorCode::device_lost:
    case ErrorCode::unavailable:
      out.status = 503;
      break;
    default:
      break;
  }
  return out;
}

std::string to_utf8(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const device::Utf8Char c = device::utf8_front(bytes);
    out += c.size != 0 ? bytes.substr(0, c.size) : std::string_view("\uFFFD");
    bytes.remove_prefix(c.size != 0 ? c.size : 1);
  }
  return out;
}

std::string to_body(const ApiError& error) {
  const auto or_null = [](const std::string& s) { return s.empty() ? json::value(nullptr) : json::value(to_utf8(s)); };
  return json::serialize(json::object{
      {"error",
       json::object{
           {"message", to_utf8(error.message)}, {"type", error.type}, {"param", or_null(error.param)}, {"code", or_null(error.code)}}}});
}

}  // namespace troupe::serve
