// troupe serve: an OpenAI-compatible HTTP server over one model.
#include <fmt/format.h>
#include <boost/program_options/value_semantic.hpp>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include "tools/serve/server.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/engine.h"
#include "tools/troupe/output.h"
#include "tools/troupe/stop_signal.h"

namespace troupe::tools {
namespace {

namespace po = boost::program_options;

Error wrong(std::string what) { return Error{ErrorCode::bad_request, std::move(what)}; }

// "127.0.0.1:8080", "[::1]:8080".
Result<void> read_listen(const std::string& text, serve::ServeOptions& out) {
  const std::size_t colon = text.rfind(':');
  const std::string port = colon == text.npos ? "" : text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (colon == 0 || port.empty() || error != std::errc{} || end != port.data() + port.size()) {
    return wrong(fmt::format("--listen must be ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080, and is {}", text));
  }
  out.address = text.substr(0, colon);
  if (out.address.starts_with('[') && out.address.ends_with(']')) out.address = out.address.substr(1, out.address.size() - 2);
  return success();
}

// A key a line; empty lines and lines that begin with # are none.
Result<std::vector<std::string>> read_keys(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Error{ErrorCode::io_failed, fmt::format("{}: cannot read the API keys", path)};
  std::vector<std::string> keys;
  for (std::string line; std::getline(in, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.pop_back();
    if (!line.empty() && line[0] != '#') keys.push_back(line);
  }
  if (keys.empty()) return Error{ErrorCode::bad_file, fmt::format("{}: there is no API key in it; write one a line", path)};
  return keys;
}

po::options_description serve_options() {
  po::options_description own("Options of serve");
  auto add = own.add_options();
  const auto text = [] { return po::value<std::string>(); };
  const auto count = [](std::int64_t value) { return po::value<std::int64_t>()->default_value(value)->value_name("N"); };
  add("listen", text()->default_value("127.0.0.1:8080")->value_name("ADDRESS:PORT"), "where to listen; port 0 takes a free one");
  add("model-name", text()->value_name("NAME"), "what clients call the model (default: the file's name)");
  add("api-key-file", text()->value_name("FILE"), "keys, one a line; clients send one as Authorization: Bearer KEY");
  add("tls-certificate", text()->value_name("FILE"), "PEM, with the chain; needs --tls-key");
  add("tls-key", text()->value_name("FILE"), "PEM");
  add("max-connections", count(1024), "further ones are told to try again later");
  add("max-body", count(4 << 20), "bytes of a request's body");
  add("max-header", count(16 << 10), "bytes of a request's headers");
  add("stream-buffer", count(256 << 10), "bytes of a streamed answer that may wait for its client; beyond, it is cut off");
  add("header-timeout", count(10), "seconds for a request's headers to come");
  add("body-timeout", count(60), "seconds for its body");
  add("idle-timeout", count(75), "seconds between two requests of a connection");
  add("write-timeout", count(30), "seconds for a client to take what is written");
  add("request-timeout", count(0), "seconds that a request may take; 0 = any");
  add("stall-after", count(30), "seconds without a settled step, while work waits, until /health says so");
  add("drain", count(30), "seconds that SIGTERM waits for what runs");
  add_trace_options(own);
  add_node_options(own);
  return own;
}

Result<serve::ServeOptions> to_options(const po::variables_map& values, const CommonOptions& common) {
  serve::ServeOptions out;
  const auto text = [&](const char* name) { return values.count(name) == 0 ? std::string() : values[name].as<std::string>(); };
  Error bad;
  const auto count = [&](const char* name, std::int64_t low, std::int64_t high) {
    const auto n = values[name].as<std::int64_t>();
    if (n < low || n > high) bad = wrong(fmt::format("--{} must be between {} and {}, and is {}", name, low, high, n));
    return n;
  };
  const auto seconds = [&](const char* name, std::int64_t low) { return std::chrono::seconds(count(name, low, 1'000'000)); };
  TROUPE_TRY(read_listen(text("listen"), out));
  out.model_name = text("model-name");
  if (out.model_name.empty()) {
    const std::filesystem::path file = common.model.empty() ? default_model_path() : common.model;
    out.model_name = (file.has_filename() ? file : file.parent_path()).filename().string();
    if (out.model_name.ends_with(".gguf")) out.model_name.resize(out.model_name.size() - 5);
  }
  if (!text("api-key-file").empty()) {
    TROUPE_TRY(out.api_keys, read_keys(text("api-key-file")));
  }
  out.tls_certificate = text("tls-certificate");
  out.tls_key = text("tls-key");
  if (out.tls_certificate.empty() != out.tls_key.empty()) return wrong("--tls-certificate and --tls-key belong together");
  out.max_connections = static_cast<std::uint32_t>(count("max-connections", 1, 1 << 20));
  out.max_body = static_cast<std::size_t>(count("max-body", 1, 1 << 30));
  out.max_header = static_cast<std::size_t>(count("max-header", 256, 1 << 24));
  out.stream_buffer = static_cast<std::size_t>(count("stream-buffer", 1024, 1 << 30));
  out.header_timeout = seconds("header-timeout", 1);
  out.body_timeout = seconds("body-timeout", 1);
  out.idle_timeout = seconds("idle-timeout", 1);
  out.write_timeout = seconds("write-timeout", 1);
  out.request_timeout = seconds("request-timeout", 0);
  out.stall_after = seconds("stall-after", 1);
  out.drain_limit = seconds("drain", 0);
  if (bad.code != ErrorCode::none) return bad;
  return out;
}

}  // namespace

int run_serve(const Command& self, const std::vector<std::string>& args) {
  auto parsed = parse_command_line(self, args, serve_options(), 0);
  if (!parsed) return fail(self, parsed.error(), kExitUsage);
  if (parsed.value().help) return kExitOk;
  const CommonOptions& common = parsed.value().common;
  auto options = to_options(parsed.value().values, common);
  if (!options) return fail(self, options.error(), options.error().code == ErrorCode::bad_request ? kExitUsage : kExitStart);
  const sigset_t signals = hold_signals();
  auto engine = start_engine(common, common.depth);
  if (!engine) return fail(self, engine.error(), kExitStart);
  auto server = serve::Server::start(*engine.value().runtime, engine.value().text, options.value());
  if (!server) return fail(self, server.error(), kExitStart);
  const std::string& address = options.value().address;
  const auto written = write_all(1, fmt::format("listening at {}://{}:{}\n", options.value().tls_key.empty() ? "http" : "https",
                                                address.find(':') == address.npos ? address : '[' + address + ']', server.value()->port()));
  if (!written) return fail(self, written.error(), kExitClosed);
  wait_for_signal(signals);
  if (server.value()->stop()) return kExitOk;
  return fail(self, Error{ErrorCode::closed, "not every request was complete when the time to drain was over"}, kExitFailed);
}

}  // namespace troupe::tools
