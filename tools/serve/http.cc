#include "tools/serve/http.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <boost/beast/http/status.hpp>

#include <algorithm>
#include <cctype>

namespace troupe::serve {
namespace {

struct Path {
  std::string_view path;
  std::string_view method;
  Endpoint endpoint;
  Access access;
};
constexpr Path kPaths[] = {
    {"/health", "GET", Endpoint::health, Access::everybody},
    {"/metrics", "GET", Endpoint::metrics, Access::everybody},
    {"/v1/models", "GET", Endpoint::models, Access::key},
    {"/v1/completions", "POST", Endpoint::completions, Access::key},
    {"/v1/chat/completions", "POST", Endpoint::chat, Access::key},
    {"/tokenize", "POST", Endpoint::tokenize, Access::key},
    {"/detokenize", "POST", Endpoint::detokenize, Access::key},
    {"/v1/load_lora_adapter", "POST", Endpoint::load_lora, Access::key},
    {"/v1/unload_lora_adapter", "POST", Endpoint::unload_lora, Access::key},
    {"/replicas", "GET", Endpoint::replicas, Access::key},
    {"/replicas/drain", "POST", Endpoint::drain_replica, Access::owner},
    {"/replicas/undrain", "POST", Endpoint::undrain_replica, Access::owner},
    {"/debug/state", "GET", Endpoint::debug_state, Access::key},
    {"/debug/trace", "GET", Endpoint::debug_trace, Access::owner},
};
constexpr std::string_view kModelPrefix = "/v1/models/";

std::string status_line(int status) {
  const auto reason = boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(status));
  return fmt::format("HTTP/1.1 {} {}\r\n", status, std::string_view(reason.data(), reason.size()));
}

bool is_json(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  std::string lower;
  for (const char c : type) {
    if (c != ' ' && c != '\t') lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return lower == "application/json";
}

bool serves(std::string_view method, std::string_view asked) { return asked == method || (method == "GET" && asked == "HEAD"); }

ApiError wrong_method(const HttpRequest& request, std::string_view wanted) {
  ApiError out{405, "invalid_request_error", fmt::format("{} {} is not served; use {}", request.method, request.path, wanted), "",
               "method_not_allowed"};
  out.allow = wanted == "GET" ? "GET, HEAD" : wanted;
  return out;
}

}  // namespace

HttpReply to_reply(const ApiError& error) {
  HttpReply out;
  out.status = error.status;
  out.body = to_body(error);
  if (error.status == 429 || error.status == 503) {
    // Retry-After knows whole seconds only; OpenAI's clients prefer the other.
    out.headers.emplace_back("Retry-After", std::to_string((error.retry_after.count() + 999) / 1000));
    out.headers.emplace_back("retry-after-ms", std::to_string(error.retry_after.count()));
  }
  if (error.status == 405) out.headers.emplace_back("Allow", error.allow);
  if (error.status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

std::string head_of(const HttpReply& reply, bool keep_alive) {
  std::string out = status_line(reply.status);
  out += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n", reply.content_type, reply.length.value_or(reply.body.size()));
  for (const auto& [name, value] : reply.headers) out += fmt::format("{}: {}\r\n", name, value);
  return out + (keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
}

std::string stream_head(bool keep_alive, bool chunked) {
  std::string out = status_line(200) + "Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n";
  if (chunked) out += "Transfer-Encoding: chunked\r\n";
  return out + (keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
}

std::string chunk(std::string_view bytes) { return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes); }

ApiResult<Route> route(const HttpRequest& request) {
  for (const Path& p : kPaths) {
    if (p.path != request.path) continue;
    if (!serves(p.method, request.method)) return wrong_method(request, p.method);
    const bool body = p.method == "POST";
    if (body && !is_json(request.content_type)) {
      return ApiError{415, "invalid_request_error", "the body must be JSON: send Content-Type: application/json", "",
                      "unsupported_media_type"};
    }
    return Route{p.endpoint, "", p.access, body};
  }
  if (request.path.starts_with(kModelPrefix) && request.path.size() > kModelPrefix.size()) {
    if (!serves("GET", request.method)) return wrong_method(request, "GET");
    return Route{Endpoint::model, request.path.substr(kModelPrefix.size()), Access::key, false};
  }
  return not_found(fmt::format("there is no {}", request.path), "unknown_url");
}

ApiResult<void> authorize(const HttpRequest& request, Access access, const std::vector<std::string>& keys, bool local) {
  if (access == Access::everybody) return BOOST_OUTCOME_V2_NAMESPACE::success();
  if (keys.empty()) {
    if (access == Access::key || local) return BOOST_OUTCOME_V2_NAMESPACE::success();
    return ApiError{403, "permission_error",
                    fmt::format("{} is the owner's: ask on the server itself, or start it with --api-key-file", request.path), "",
                    "forbidden"};
  }
  constexpr std::string_view kScheme = "Bearer ";
  std::string_view given = request.authorization;
  const bool bearer = given.size() >= kScheme.size() && std::equal(kScheme.begin(), kScheme.end(), given.begin(), [](char a, char b) {
                        return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
                      });
  given.remove_prefix(bearer ? kScheme.size() : given.size());
  bool known = false;
  for (const std::string& key : keys) known |= key.size() == given.size() && CRYPTO_memcmp(key.data(), given.data(), key.size()) == 0;
  if (known) return BOOST_OUTCOME_V2_NAMESPACE::success();
  return ApiError{401, "authentication_error", bearer ? "this API key is not known" : "send an API key as Authorization: Bearer KEY", "",
                  "invalid_api_key"};
}

}  // namespace troupe::serve
