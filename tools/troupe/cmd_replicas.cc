// troupe status, top, drain, undrain: the replicas of a running `troupe serve`.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <boost/json.hpp>
#include <boost/program_options/value_semantic.hpp>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <thread>

#include "tools/troupe/commands.h"
#include "tools/troupe/output.h"
#include "tools/troupe/replica_table.h"
#include "tools/troupe/server_client.h"

namespace troupe::tools {
namespace {

namespace http = boost::beast::http;
namespace json = boost::json;
namespace po = boost::program_options;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kWidth = 200;  // of lines that go to no terminal
constexpr std::chrono::milliseconds kDrainPoll{200};

// What the server says; with a status that is not 200 its complaint.
Result<std::string> body_of(Result<ServerReply> reply) {
  if (!reply) return reply.error();
  if (reply.value().status != 200) return Error{ErrorCode::bad_request, complaint(reply.value())};
  return std::move(reply.value().body);
}

Result<ReplicaSample> sample(const ServerAddress& at) {
  TROUPE_TRY(auto body, body_of(ask(at, http::verb::get, "/replicas")));
  return parse_replicas(body);
}

int failed(const Command& self, const Error& error) {
  return fail(self, error, error.code == ErrorCode::io_failed ? kExitStart : kExitFailed);
}

std::size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string clock_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

std::string joined(const std::vector<std::string>& lines, const char* end) {
  std::string out;
  for (const std::string& line : lines) out += line + end;
  return out;
}

// A number names a replica by its index.
std::string replica_body(const std::string& replica) {
  const bool index = !replica.empty() && replica.size() < 10 && replica.find_first_not_of("0123456789") == std::string::npos;
  return json::serialize(json::object{{"replica", index ? json::value(std::stoul(replica)) : json::value(replica)}});
}

bool is_named(const ReplicaSample& s, std::size_t i, const std::string& replica) {
  return s.replicas[i].name == replica || std::to_string(i) == replica;
}

}  // namespace

int run_status(const Command& self, const std::vector<std::string>& args) {
  po::options_description own("Options of status");
  own.add_options()("json", po::bool_switch(), "as the server gives it");
  add_server_options(own);
  auto parsed = parse_command_line(self, args, own, 0);
  if (!parsed) return fail(self, parsed.error(), kExitUsage);
  if (parsed.value().help) return kExitOk;
  auto at = server_address(parsed.value().values);
  if (!at) return fail(self, at.error(), kExitUsage);
  auto body = body_of(ask(at.value(), http::verb::get, "/replicas"));
  if (!body) return failed(self, body.error());
  std::string text = body.value() + '\n';
  if (!parsed.value().values["json"].as<bool>()) {
    auto now = parse_replicas(body.value());
    if (!now) return failed(self, now.error());
    text = joined(replica_table(now.value(), nullptr, 0, kWidth), "\n");
  }
  const auto written = write_all(1, text);
  return written ? kExitOk : fail(self, written.error(), kExitClosed);
}

int run_top(const Command& self, const std::vector<std::string>& args) {
  po::options_description own("Options of top");
  auto add = own.add_options();
  add("interval", po::value<double>()->default_value(1)->value_name("SECONDS"), "between two looks");
  add("count", po::value<std::uint32_t>()->default_value(0)->value_name("N"), "looks, then the end; 0 = until it is stopped");
  add_server_options(own);
  auto parsed = parse_command_line(self, args, own, 0);
  if (!parsed) return fail(self, parsed.error(), kExitUsage);
  if (parsed.value().help) return kExitOk;
  const po::variables_map& values = parsed.value().values;
  const double interval = values["interval"].as<double>();
  if (!(interval >= 0.05 && interval <= 3600)) {
    return fail(self, Error{ErrorCode::bad_request, "--interval must be between 0.05 and 3600 seconds"}, kExitUsage);
  }
  auto at = server_address(values);
  if (!at) return fail(self, at.error(), kExitUsage);
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  std::optional<ReplicaSample> before;
  Clock::time_point taken{};
  std::size_t drawn = 0;  // lines on the terminal
  for (std::uint32_t n = 0; values["count"].as<std::uint32_t>() == 0 || n < values["count"].as<std::uint32_t>(); ++n) {
    if (n > 0) std::this_thread::sleep_until(taken + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(interval)));
    auto now = sample(at.value());
    if (!now) return failed(self, now.error());
    const Clock::time_point then = std::exchange(taken, Clock::now());
    const double seconds = std::chrono::duration<double>(taken - then).count();
    auto lines = replica_table(now.value(), before ? &*before : nullptr, seconds, terminal ? terminal_width() : kWidth);
    std::string text;
    if (terminal) {
      // Over what is there: up to its first line, each line with what is left of the old one erased, and what is below.
      if (drawn > 0) text = fmt::format("\x1b[{}A\r", drawn);
      text += joined(lines, "\x1b[K\n") + "\x1b[J";
      drawn = lines.size();
    } else {
      text = clock_time() + "  " + joined(lines, "\n");
    }
    if (const auto written = write_all(1, text); !written) return fail(self, written.error(), kExitClosed);
    before = std::move(now.value());
  }
  return kExitOk;
}

int run_drain(const Command& self, const std::vector<std::string>& args) {
  po::options_description own("Options of drain");
  own.add_options()("no-wait", po::bool_switch(), "do not wait until the replica has no request left");
  add_server_options(own);
  auto parsed = parse_command_line(self, args, own, 1);
  if (!parsed) return fail(self, parsed.error(), kExitUsage);
  if (parsed.value().help) return kExitOk;
  auto at = server_address(parsed.value().values);
  if (!at) return fail(self, at.error(), kExitUsage);
  const std::string& replica = parsed.value().positional[0];
  auto body = body_of(ask(at.value(), http::verb::post, "/replicas/drain", replica_body(replica)));
  if (!body) return failed(self, body.error());
  const auto until = Clock::now() + at.value().patience;
  for (bool waits = !parsed.value().values["no-wait"].as<bool>(); waits;) {
    auto now = sample(at.value());
    if (!now) return failed(self, now.error());
    waits = false;
    for (std::size_t i = 0; i < now.value().replicas.size(); ++i) {
      const ReplicaRow& r = now.value().replicas[i];
      if (!is_named(now.value(), i, replica)) continue;
      waits = r.state == "draining";
      body = fmt::format("{} {}", r.name, r.state);
    }
    if (!waits) break;
    if (Clock::now() >= until) return fail(self, Error{ErrorCode::timed_out, "it still has requests; it goes on draining"}, kExitFailed);
    std::this_thread::sleep_for(kDrainPoll);
  }
  const auto written = write_all(1, body.value() + '\n');
  return written ? kExitOk : fail(self, written.error(), kExitClosed);
}

int run_undrain(const Command& self, const std::vector<std::string>& args) {
  po::options_description own("Options of undrain");
  add_server_options(own);
  auto parsed = parse_command_line(self, args, own, 1);
  if (!parsed) return fail(self, parsed.error(), kExitUsage);
  if (parsed.value().help) return kExitOk;
  auto at = server_address(parsed.value().values);
  if (!at) return fail(self, at.error(), kExitUsage);
  auto body = body_of(ask(at.value(), http::verb::post, "/replicas/undrain", replica_body(parsed.value().positional[0])));
  if (!body) return failed(self, body.error());
  const auto written = write_all(1, body.value() + '\n');
  return written ? kExitOk : fail(self, written.error(), kExitClosed);
}

}  // namespace troupe::tools
