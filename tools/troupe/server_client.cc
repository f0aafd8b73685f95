#include "tools/troupe/server_client.h"

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>
#include <boost/program_options/value_semantic.hpp>

#include <cstdint>
#include <fstream>
#include <utility>

namespace troupe::tools {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace json = boost::json;
namespace po = boost::program_options;

using Request = http::request<http::string_body>;

Result<ServerAddress> read_server(std::string text) {
  if (text.starts_with("https://")) {
    return Error{ErrorCode::unsupported, "--server: https is not spoken here; name the server's own http:// address, or use curl"};
  }
  if (text.starts_with("http://")) text.erase(0, 7);
  while (text.ends_with('/')) text.pop_back();
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0 || colon + 1 == text.size()) {
    return Error{ErrorCode::bad_request, fmt::format("--server must be http://HOST:PORT, as `troupe serve` says it, and is {}", text)};
  }
  ServerAddress out;
  out.host = text.substr(0, colon);
  out.port = text.substr(colon + 1);
  if (out.host.starts_with('[') && out.host.ends_with(']')) out.host = out.host.substr(1, out.host.size() - 2);
  return out;
}

}  // namespace

void add_server_options(po::options_description& own) {
  auto add = own.add_options();
  add("server", po::value<std::string>()->default_value("http://127.0.0.1:8080")->value_name("URL"), "as `troupe serve` says it");
  add("api-key-file", po::value<std::string>()->value_name("FILE"), "its first line is sent as the key");
  add("patience", po::value<std::uint32_t>()->default_value(300)->value_name("N"), "seconds to wait for the answer");
}

Result<ServerAddress> server_address(const po::variables_map& values) {
  TROUPE_TRY(auto out, read_server(values["server"].as<std::string>()));
  out.patience = std::chrono::seconds(values["patience"].as<std::uint32_t>());
  if (values.count("api-key-file") == 0) return out;
  const auto& path = values["api-key-file"].as<std::string>();
  std::ifstream in(path);
  if (!std::getline(in, out.key) || out.key.empty())
    return Error{ErrorCode::bad_file, fmt::format("{}: its first line must be the API key", path)};
  return out;
}

Result<ServerReply> ask(const ServerAddress& at, http::verb verb, std::string_view target, const std::string& body) {
  Request request{verb, beast::string_view(target.data(), target.size()), 11};
  request.set(http::field::host, at.host + ":" + at.port);
  if (!at.key.empty()) request.set(http::field::authorization, "Bearer " + at.key);
  if (!body.empty()) request.set(http::field::content_type, "application/json");
  request.body() = body;
  request.prepare_payload();
  asio::io_context io;
  asio::ip::tcp::resolver resolver(io);
  beast::tcp_stream stream(io);
  beast::flat_buffer buffer;
  http::response<http::string_body> response;
  beast::error_code failed;
  stream.expires_after(at.patience);
  const auto read = [&](beast::error_code error, std::size_t) {
    if ((failed = error)) return;
    http::async_read(stream, buffer, response, [&](beast::error_code e, std::size_t) { failed = e; });
  };
  const auto write = [&](beast::error_code error, const asio::ip::tcp::endpoint&) {
    if ((failed = error)) return;
    http::async_write(stream, request, read);
  };
  resolver.async_resolve(at.host, at.port, [&](beast::error_code error, const asio::ip::tcp::resolver::results_type& ends) {
    if ((failed = error)) return;
    stream.async_connect(ends, write);
  });
  io.run();
  if (!failed) return ServerReply{response.result_int(), std::move(response.body())};
  return Error{ErrorCode::io_failed, fmt::format("{}:{}: {}; is `troupe serve` running there?", at.host, at.port, failed.message())};
}

std::string complaint(const ServerReply& reply) {
  boost::system::error_code bad;
  const json::value body = json::parse(reply.body, bad);
  if (const auto* object = bad ? nullptr : body.if_object()) {
    if (const auto* error = object->if_contains("error"); error != nullptr && error->is_object()) {
      if (const auto* message = error->as_object().if_contains("message"); message != nullptr && message->is_string())
        return std::string(message->as_string());
    }
  }
  return fmt::format("the server answered with status {}", reply.status);
}

}  // namespace troupe::tools
