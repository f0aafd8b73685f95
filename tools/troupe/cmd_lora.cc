// troupe lora: the LoRA adapters of a running `troupe serve`.
#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>

#include "tools/troupe/commands.h"
#include "tools/troupe/output.h"
#include "tools/troupe/server_client.h"

namespace troupe::tools {
namespace {

namespace http = boost::beast::http;
namespace json = boost::json;
namespace po = boost::program_options;

// The names of the adapters, a line each: the models that have a parent.
Result<std::string> names(const ServerReply& reply) {
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

std::string body_of(const Action& action, const Parsed& line) {
  if (action.n_arguments == 0) return {};
  json::object body{{"lora_name", line.positional[0]}};
  if (action.n_arguments > 1) {
    // A folder is the server's; one that is here too is named so that the server finds it from where it was started.
    std::error_code none;
    const auto& folder = line.positional[1];
    body["lora_path"] = std::filesystem::exists(folder, none) ? std::filesystem::absolute(folder, none).string() : folder;
  }
  return json::serialize(body);
}

}  // namespace

int run_lora(const Command& self, const std::vector<std::string>& args) {
  po::options_description own("Options of lora");
  add_server_options(own);
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
  auto at = server_address(line.values);
  if (!at) return fail(self, at.error(), kExitUsage);
  auto reply = ask(at.value(), action->verb, action->target, body_of(*action, line));
  if (!reply) return fail(self, reply.error(), kExitStart);
  if (reply.value().status != 200) return fail(self, Error{ErrorCode::bad_request, complaint(reply.value())}, kExitFailed);
  auto text = action->n_arguments == 0 ? names(reply.value()) : Result<std::string>(reply.value().body + '\n');
  if (!text) return fail(self, text.error(), kExitFailed);
  const auto written = write_all(1, text.value());
  return written ? kExitOk : fail(self, written.error(), kExitClosed);
}

}  // namespace troupe::tools
