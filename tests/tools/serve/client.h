// HTTP from the client's side, for tests: a blocking socket, so that a test can also send what no HTTP client would.
// One thread.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::serve {

struct Response {
  int status = 0;  // 0: the connection ended before a whole response came
  std::string body;
  std::string connection, content_type, retry_after, retry_after_ms, allow;
  boost::json::value json() const {
    boost::json::error_code error;
    auto value = boost::json::parse(body, error);
    EXPECT_FALSE(error) << body;
    return value;
  }
  // error.code, or error.message where that is null.
  std::string error() const {
    const auto v = json();
    const auto& e = v.at("error");
    return std::string((e.at("code").is_null() ? e.at("message") : e.at("code")).as_string());
  }
};

class Client {
 public:
  explicit Client(std::uint16_t port, int receive_buffer = 0);
  Client(Client&& o) noexcept : fd_(std::exchange(o.fd_, -1)), connected_(o.connected_), text_(std::move(o.text_)) {}
  Client& operator=(Client&&) = delete;
  ~Client() { hang_up(); }

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void hang_up();
  void half_close();  // sends no more, and still listens

  bool send(std::string_view bytes);
  // Appends what comes to the text that was not used yet; false at the end.
  bool receive();
  // Until `n` times `what` have come, or the end.
  bool receive_until(std::string_view what, std::size_t n = 1);
  const std::string& text() const { return text_; }
  void forget() { text_.clear(); }
  std::string receive_all();

  Response response();

  Response get(const std::string& path, const std::string& headers = "") {
    send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n", path, headers));
    return response();
  }
  static std::string post_text(const std::string& path, std::string_view body, const std::string& headers = "") {
    return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}", path, headers,
                       body.size(), body);
  }
  Response post(const std::string& path, std::string_view body, const std::string& headers = "") {
    send(post_text(path, body, headers));
    return response();
  }

 private:
  int fd_;
  bool connected_ = false;
  std::string text_;
};

// The events of a stream: the JSON values, without [DONE], which must come last.
std::vector<boost::json::value> events_of(const std::string& body);

// What choice `index` of a completion's stream says.
std::string text_of(const std::vector<boost::json::value>& events, std::int64_t index = 0);

}  // namespace troupe::serve
