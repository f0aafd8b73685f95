#include "tests/tools/serve/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace troupe::serve {

Client::Client(std::uint16_t port, int receive_buffer) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  const timeval patience{60, 0};  // for a server that hangs; nothing is measured
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
}

void Client::hang_up() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void Client::half_close() { ::shutdown(fd_, SHUT_WR); }

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool Client::receive() {
  char bytes[16384];
  const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
  if (n > 0) text_.append(bytes, static_cast<std::size_t>(n));
  return n > 0;
}

bool Client::receive_until(std::string_view what, std::size_t n) {
  for (;;) {
    std::size_t found = 0;
    for (std::size_t at = text_.find(what); at != text_.npos; at = text_.find(what, at + what.size())) ++found;
    if (found >= n) return true;
    if (!receive()) return false;
  }
}

std::string Client::receive_all() {
  while (receive()) {
  }
  return std::exchange(text_, {});
}

Response Client::response() {
  namespace http = boost::beast::http;
  http::response_parser<http::string_body> parser;
  parser.eager(true);
  parser.body_limit(std::uint64_t{1} << 30);
  boost::system::error_code error;
  for (;;) {
    if (!text_.empty()) {
      const std::size_t used = parser.put(boost::asio::buffer(text_), error);
      text_.erase(0, used);
      if (error && error != http::error::need_more) return {};
      if (parser.is_done()) break;
      if (used > 0 && !text_.empty()) continue;
    }
    if (receive()) continue;
    parser.put_eof(error);
    if (error || !parser.is_done()) return {};
    break;
  }
  const auto message = parser.release();
  if (message.result_int() == 100) return response();
  const auto header = [&](const char* name) { return std::string(message[name]); };
  return {static_cast<int>(message.result_int()),
          message.body(),
          header("Connection"),
          header("Content-Type"),
          header("Retry-After"),
          header("retry-after-ms"),
          header("Allow")};
}

std::vector<boost::json::value> events_of(const std::string& body) {
  std::vector<boost::json::value> out;
  bool done = false;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    if (end == body.npos || !std::string_view(body).substr(at).starts_with("data: ")) {
      ADD_FAILURE() << "no event: " << body.substr(at);
      break;
    }
    const std::string data = body.substr(at + 6, end - at - 6);
    EXPECT_FALSE(done) << "after [DONE]: " << data;
    if (data == "[DONE]") {
      done = true;
    } else {
      out.push_back(boost::json::parse(data));
    }
    at = end + 2;
  }
  EXPECT_TRUE(done) << "no [DONE] in " << body;
  return out;
}

std::string text_of(const std::vector<boost::json::value>& events, std::int64_t index) {
  std::string out;
  for (const auto& event : events) {
    for (const auto& choice : event.at("choices").as_array()) {
      if (choice.at("index").as_int64() == index) out += choice.at("text").as_string();
    }
  }
  return out;
}

}  // namespace troupe::serve
