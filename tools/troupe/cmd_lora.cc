// troupe lora: the LoRA adapters of a running `troupe serve`.
#include <fmt/format.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>
#include <boost/program_options/value_semantic.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "tools/troupe/commands.h"
#include "tools/troupe/output.h"

namespace troupe::tools {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace json = boost::json;
namespace po = boost::program_options;

struct Address {
  std::string host, port;
};

struct Reply {
  unsigned status = 0;
  std::string body;
};

// "http://127.0.0.1:8080"; a bare HOST:PORT too.
Result<Address> read_server(std::string text) {
  if (text.starts_with("https://")) {
    return Error{ErrorCode::unsupported, "--server: https is not spoken here; name the server's own http:// address, or use curl"};
  }
  if (text.starts_with("http://")) text.erase(0, 7);
  while (text.ends_with('/')) text.pop_back();
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0 || colon + 1 == text.size()) {
    return Error{ErrorCode::bad_request, fmt::format("--server must be http://HOST:PORT, as `troupe serve` says it, and is {}", text)};
  }
  Address out{text.substr(0, colon), text.substr(colon + 1)};
  if (out.host.starts_with('[') && out.host.ends_with(']')) out.host = out.host.substr(1, out.host.size() - 2);
  return out;
}

using Request = http::request<http::string_body>;

// io_failed: the server can't be reached, or says nothing for so long.
Result<Reply> ask(const Address& at, const Request& request, std::chrono::seconds patience) {
  asio::io_context io;
  asio::ip::tcp::resolver resolver(io);
  beast::tcp_stream stream(io);
  beast::flat_buffer buffer;
  http::response<http::string_body> response;
  beast::error_code failed;
  stream.expires_after(patience);
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
  if (!failed) return Reply{response.result_int(), std::move(response.body())};
  return Error{ErrorCode::io_failed, fmt::format("{}:{}: {}; is `troupe serve` running there?", at.host, at.port, failed.message())};
}

// What the server said is wrong, in OpenAI's shape or any other.
std::string complaint(const Reply& reply) {
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

// The names of the adapters, a line each: the models that have a parent.
Result<std::string> names(const Reply& reply) {
  boost::system::error_code bad;
  const json::value body = json::parse(reply.body, bad);
  const auto* object = bad ? nullptr : body.if_object();
  const auto* data = object != nullptr ? object->if_contains("data") : nullptr;
  if (data == nullptr || !data->is_array())
    return Error{ErrorCode::io_failed, "the answer is no list of models; is it `troupe serve` there?"};
  std::string out;
  for (const json::value& model : data->as_array()) {
    const auto* m = model.if_object();
    const auto* id = m != nullptr && m->contains("parent") ? m->if_contains("id") : nullptr;
    if (id != nullptr && id->is_string()) out += std::string(id->as_string()) + '\n';
  }
  return out;
}

struct Action {
  std::string_view name;
  std::size_t n_arguments;
  http::verb verb;
  std::string_view target;
};

constexpr std::array kActions = {Action{"list", 0, http::verb::get, "/v1/models"},
                                 Action{"load", 2, http::verb::post, "/v1/load_lora_adapter"},
                                 Action{"unload", 1, http::verb::post, "/v1/unload_lora_adapter"}};

Result<Request> to_request(const Action& action, const Address& at, const Parsed& line) {
  Request out{action.verb, beast::string_view(action.target.data(), action.target.size()), 11};
  out.set(http::field::host, at.host + ":" + at.port);
  if (line.values.count("api-key-file") > 0) {
    const auto& path = line.values["api-key-file"].as<std::string>();
    std::ifstream in(path);
    std::string key;
    if (!std::getline(in, key) || key.empty())
      return Error{ErrorCode::bad_file, fmt::format("{}: its first line must be the API key", path)};
    out.set(http::field::authorization, "Bearer " + key);
  }
  if (action.n_arguments > 0) {
    json::object body{{"lora_name", line.positional[0]}};
    if (action.n_arguments > 1) {
      // A folder is the server's; one that is here too is named so that the server finds it from where it was started.
      std::error_code none;
      const auto& folder = line.positional[1];
      body["lora_path"] = std::filesystem::exists(folder, none) ? std::filesystem::absolute(folder, none).string() : folder;
    }
    out.set(http::field::content_type, "application/json");
    out.body() = json::serialize(body);
  }
  out.prepare_payload();
  return out;
}

}  // namespace

int run_lora(const Command& self, const std::vector<std::string>& args) {
  po::options_description own("Options of lora");
  auto add = own.add_options();
  add("server", po::value<std::string>()->default_value("http://127.0.0.1:8080")->value_name("URL"), "as `troupe serve` says it");
  add("api-key-file", po::value<std::string>()->value_name("FILE"), "its first line is sent as the key");
  add("patience", po::value<std::uint32_t>()->default_value(300)->value_name("N"), "seconds to wait for the answer");
  const Action* action = nullptr;
  for (const Action& a : kActions)
    if (!args.empty() && args[0] == a.name) action = &a;
  const bool asks_help =
      std::find(args.begin(), args.end(), "--help") != args.end() || std::find(args.begin(), args.end(), "-h") != args.end();
  if (action == nullptr && !asks_help)
    return fail(self, Error{ErrorCode::bad_request, "say `list`, `load NAME FOLDER` or `unload NAME`"}, kExitUsage);
  const std::vector<std::string> rest(args.begin() + (action != nullptr ? 1 : 0), args.end());
  auto parsed = parse_command_line(self, rest, own, action != nullptr ? action->n_arguments : 0);
  if (!parsed) return fail(self, parsed.error(), kExitUsage);
  if (parsed.value().help) return kExitOk;
  const Parsed& line = parsed.value();
  auto at = read_server(line.values["server"].as<std::string>());
  if (!at) return fail(self, at.error(), kExitUsage);
  auto request = to_request(*action, at.value(), line);
  if (!request) return fail(self, request.error(), kExitUsage);
  auto reply = ask(at.value(), request.value(), std::chrono::seconds(line.values["patience"].as<std::uint32_t>()));
  if (!reply) return fail(self, reply.error(), kExitStart);
  if (reply.value().status != 200) return fail(self, Error{ErrorCode::bad_request, complaint(reply.value())}, kExitFailed);
  auto text = action->n_arguments == 0 ? names(reply.value()) : Result<std::string>(reply.value().body + '\n');
  if (!text) return fail(self, text.error(), kExitFailed);
  const auto written = write_all(1, text.value());
  return written ? kExitOk : fail(self, written.error(), kExitClosed);
}

}  // namespace troupe::tools
