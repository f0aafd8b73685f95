// Requests and replies as values, and which path is what. Parsing is Boost.Beast's (session.cc).
// Pure functions: any thread.
#pragma once

#include <cstdint>
#include <optional>
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
  std::optional<std::uint64_t> length;  // of a body that comes from somewhere else; none: it is `body`
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
};

HttpReply to_reply(const ApiError& error);
// Status line and headers.
std::string head_of(const HttpReply& reply, bool keep_alive);
// The same for a body of unstated length, which is chunked or ends with the connection.
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
  replicas,
  drain_replica,
  undrain_replica,
  debug_state,
  debug_trace
};
enum class Access : std::uint8_t {
  everybody,  // also without a key
  key,        // with a key, where there are keys
  owner       // that, and where there are none, from this machine only: it shows what others sent, or stops what serves them
};
struct Route {
  Endpoint endpoint = Endpoint::health;
  std::string argument;  // model: its name
  Access access = Access::key;
  bool has_body = false;  // JSON
};
// GET also serves HEAD. 404 for a path, 405 for a method that is not served; 415 for a body that does not say that it is JSON (a page in a
// browser cannot send that to this server without asking first).
ApiResult<Route> route(const HttpRequest& request);

// 401, unless one of `keys` is the request's bearer token; takes the same time for any wrong key of a length. 403: there are
// no keys, and this is not for others than the owner of the machine. `local`: the client is on it.
ApiResult<void> authorize(const HttpRequest& request, Access access, const std::vector<std::string>& keys, bool local);

}  // namespace troupe::serve
