// troupe node: replicas for runtimes on other machines.
#include <fmt/format.h>
#include <boost/program_options/value_semantic.hpp>

#include "actors/node.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/engine.h"
#include "tools/troupe/output.h"
#include "tools/troupe/stop_signal.h"

namespace troupe::tools {
namespace {

namespace po = boost::program_options;

po::options_description node_options() {
  po::options_description own("Options of node");
  auto add = own.add_options();
  add("listen", po::value<std::string>()->default_value("127.0.0.1:4100")->value_name("ADDRESS:PORT"),
      "where to listen; port 0 takes a free one");
  add("name", po::value<std::string>()->value_name("NAME"), "what the node calls itself (default: where it listens)");
  add("max-live", po::value<std::int64_t>()->default_value(1024)->value_name("N"), "requests of one runtime at a time");
  add_certificate_options(own);
  add_trace_options(own);
  return own;
}

Result<NodeOptions> to_options(const po::variables_map& values, const CommonOptions& common) {
  NodeOptions out;
  TROUPE_TRY(auto at, actors::link::parse_host_port(values["listen"].as<std::string>()));
  out.address = at.host;
  out.port = at.port;
  if (values.count("name") != 0) out.name = values["name"].as<std::string>();
  out.credentials = {common.cert, common.key, common.ca};
  out.runtime = runtime_options(common, common.depth);
  const auto live = values["max-live"].as<std::int64_t>();
  if (live < 1 || live > 1 << 20) return Error{ErrorCode::bad_request, fmt::format("--max-live must be between 1 and {}", 1 << 20)};
  out.runtime.max_live = static_cast<std::uint32_t>(live);
  return out;
}

int status_of(const Error& error) { return error.code == ErrorCode::bad_request ? kExitUsage : kExitStart; }

}  // namespace

int run_node(const Command& self, const std::vector<std::string>& args) {
  auto parsed = parse_command_line(self, args, node_options(), 0);
  if (!parsed) return fail(self, parsed.error(), kExitUsage);
  if (parsed.value().help) return kExitOk;
  const CommonOptions& common = parsed.value().common;
  auto options = to_options(parsed.value().values, common);
  if (!options) return fail(self, options.error(), status_of(options.error()));
  const sigset_t signals = hold_signals();
  auto replicas = device_replicas(common, common.depth);
  if (!replicas) return fail(self, replicas.error(), kExitStart);
  auto node = Node::start(options.value(), std::move(replicas.value().sources));
  if (!node) return fail(self, node.error(), status_of(node.error()));
  const std::string& address = options.value().address;
  const auto written = write_all(
      1, fmt::format("listening at {}:{}\n", address.find(':') == address.npos ? address : '[' + address + ']', node.value()->port()));
  if (!written) return fail(self, written.error(), kExitClosed);
  wait_for_signal(signals);
  const auto stopped = node.value()->stop();
  if (!stopped) return fail(self, stopped.error(), kExitFailed);
  return kExitOk;
}

}  // namespace troupe::tools
