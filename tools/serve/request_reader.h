// HTTP/1.1 requests out of a connection's bytes, by Boost.Beast's parser: with limits, pipelined, as they come.
// No I/O here; one connection, one thread.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <cstddef>
#include <optional>
#include <span>

#include "tools/serve/http.h"

namespace troupe::serve {

class RequestReader {
 public:
  RequestReader(std::size_t max_header, std::size_t max_body);

  // Room for bytes that arrive, and how many did. Empty room: the next request is whole and waits; read no further.
  std::span<char> room();
  void arrived(std::size_t n);
  void discard() { buffer_.clear(); }

  enum class Status { nothing, header, body, whole };  // of the next request: how far it has come
  // Takes in what has arrived. whole: take() it. Error: the request is malformed or breaks a limit; the connection cannot
  // go on.
  ApiResult<Status> parse();
  // Once, when parse() said `body`: the client waits to be told to send it (Expect: 100-continue).
  bool wants_continue();
  HttpRequest take();  // and begins the next

 private:
  static constexpr std::size_t kReadSize = 16 << 10;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  void begin();
  bool too_little() const;
  ApiResult<void> check_framing() const;

  std::size_t max_header_, max_body_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  bool continued_ = false;
};

}  // namespace troupe::serve
