// Requests and replies as values, and which path is what. Parsing is Boost.Beast's (session.cc).
// Pure functions: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tools/serve/api_error.h"

namespace troupe::serve {

struct HttpRequest {
  std::string method, path, query;
  std::string authorization, content_type;
  std::string body;
  bool keep_alive = true;
  bool chunked_is_known = true;  // HTTP/1.1: the client understands a body of unstated length
};

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
};

HttpReply to_reply(const ApiError& error);
// Status line and headers. `length` none: the body is chunked, or (not chunked) ends with the connection.
std::string head_of(const HttpReply& reply, bool keep_alive);
std::string stream_head(bool keep_alive, bool chunked);
// One chunk; the last one is empty.
std::string chunk(std::string_view bytes);

enum class Endpoint : std::uint8_t {
  health,
  metrics,
  models,
  model,
  completions,
  chat,
  tokenize,
  detokenize,
  load_lora,
  unload_lora,
  debug_state
};
struct Route {
  Endpoint endpoint = Endpoint::health;
  std::string argument;   // model: its name
  bool open = false;      // needs no key
  bool has_body = false;  // JSON
};
// 404 for a path, 405 for a method that is not served; 415 for a body that does not say that it is JSON (a page in a
// browser cannot send that to this server without asking first).
ApiResult<Route> route(const HttpRequest& request);

// 401, unless one of `keys` is the request's bearer token; takes the same time for any wrong key of a length.
ApiResult<void> authorize(const HttpRequest& request, const std::vector<std::string>& keys);

}  // namespace troupe::serve
