#include "tools/serve/request_reader.h"

#include <fmt/format.h>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/rfc7230.hpp>

#include <algorithm>
#include <charconv>

namespace troupe::serve {
namespace {

namespace http = boost::beast::http;

ApiError malformed(const boost::system::error_code& error, std::size_t max_header, std::size_t max_body) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return {431, "invalid_request_error", fmt::format("the headers are larger than {} bytes", max_header), "", "headers_too_large"};
  }
  if (error == http::error::body_limit) {
    return {413, "invalid_request_error", fmt::format("the body is larger than {} bytes", max_body), "", "body_too_large"};
  }
  if (error == http::error::bad_version)
    return {505, "invalid_request_error", "only HTTP/1.1 and HTTP/1.0 are spoken here", "", "bad_version"};
  return bad_request("malformed HTTP: " + error.message(), "", "bad_http");
}

// "%41" -> "A"; what is no escape stays.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string_view view(boost::beast::string_view s) { return {s.data(), s.size()}; }

// Path and query; a proxy's absolute form loses its scheme and host.
void split_target(std::string_view target, HttpRequest& out) {
  if (target.starts_with("http://") || target.starts_with("https://")) {
    const std::size_t slash = target.find('/', target.find("//") + 2);
    target = slash == target.npos ? "/" : target.substr(slash);
  }
  const std::size_t query = target.find('?');
  out.path = unescape(target.substr(0, query));
  if (query != target.npos) out.query = target.substr(query + 1);
}

}  // namespace

RequestReader::RequestReader(std::size_t max_header, std::size_t max_body)
    : max_header_(max_header), max_body_(max_body), buffer_(max_header + kReadSize) {
  begin();
}

void RequestReader::begin() {
  parser_.emplace();
  parser_->eager(true);
  parser_->header_limit(static_cast<std::uint32_t>(max_header_));
  parser_->body_limit(max_body_);
  continued_ = false;
}

std::span<char> RequestReader::room() {
  const std::size_t free = buffer_.max_size() - buffer_.size();
  if (free == 0) return {};
  const auto to = buffer_.prepare(std::min(free, kReadSize));
  return {static_cast<char*>(to.data()), to.size()};
}

void RequestReader::arrived(std::size_t n) { buffer_.commit(n); }

// Beast before Boost 1.86 asserts that a last chunk ("0\r\n\r\n", or with trailers) which it has seen the beginning of comes
// back with five bytes (boostorg/beast pull request 2861). No body ends with fewer, so that waiting for them holds nothing up.
bool RequestReader::too_little() const {
  if (!parser_->is_header_done() || !parser_->chunked() || buffer_.size() >= 5) return false;
  return *static_cast<const char*>(buffer_.data().data()) == '0';
}

// Where a body ends must be beyond doubt: a proxy in front that takes it otherwise would give one client's bytes to another
// (RFC 9112, 6.1 and 6.3).
ApiResult<void> RequestReader::check_framing() const {
  const auto& fields = parser_->get();
  if (fields.count(http::field::transfer_encoding) == 0) return BOOST_OUTCOME_V2_NAMESPACE::success();
  const std::string_view coding = view(fields[http::field::transfer_encoding]);
  if (!boost::beast::iequals(fields[http::field::transfer_encoding], "chunked")) {
    return ApiError{501, "invalid_request_error", fmt::format("Transfer-Encoding \"{}\" is not understood; send \"chunked\"", coding), "",
                    "unsupported_transfer_encoding"};
  }
  if (fields.count(http::field::content_length) == 0) return BOOST_OUTCOME_V2_NAMESPACE::success();
  return bad_request("malformed HTTP: Transfer-Encoding and Content-Length in one request", "", "bad_http");
}

ApiResult<RequestReader::Status> RequestReader::parse() {
  boost::system::error_code error;
  while (buffer_.size() > 0 && !parser_->is_done() && !too_little()) {
    const std::size_t used = parser_->put(buffer_.data(), error);
    buffer_.consume(used);
    if (error == http::error::need_more) error = {};
    if (error) return malformed(error, max_header_, max_body_);
    if (used == 0) break;
  }
  if (parser_->is_header_done()) {
    TROUPE_TRY(check_framing());
  }
  if (!parser_->is_done())
    return parser_->is_header_done() ? Status::body : buffer_.size() > 0 || parser_->got_some() ? Status::header : Status::nothing;
  if (parser_->get().version() >= 11 && parser_->get().count(http::field::host) != 1) {
    return bad_request("an HTTP/1.1 request has exactly one Host header", "", "bad_http");
  }
  return Status::whole;
}

bool RequestReader::wants_continue() {
  if (continued_ || !parser_->is_header_done()) return false;
  continued_ = true;
  return parser_->get().version() >= 11 && boost::beast::iequals(parser_->get()[http::field::expect], "100-continue");
}

HttpRequest RequestReader::take() {
  auto message = parser_->release();
  HttpRequest out;
  out.method = view(message.method_string());
  split_target(view(message.target()), out);
  out.authorization = view(message[http::field::authorization]);
  out.content_type = view(message[http::field::content_type]);
  out.body = std::move(message.body());
  out.keep_alive = message.keep_alive();
  out.chunked_is_known = message.version() >= 11;
  begin();
  return out;
}

}  // namespace troupe::serve
