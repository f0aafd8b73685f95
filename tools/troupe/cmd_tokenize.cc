// troupe tokenize: text on stdin -> {"ids":[...]} on stdout, or the other way.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <boost/program_options/value_semantic.hpp>

#include "tools/troupe/commands.h"
#include "tools/troupe/engine.h"
#include "tools/troupe/output.h"

namespace troupe::tools {
namespace {

namespace po = boost::program_options;

Result<std::string> convert(const device::TextSide& text, const po::variables_map& values) {
  TROUPE_TRY(auto input, read_all(0, std::size_t{1} << 30));
  if (values["decode"].as<bool>()) {
    TROUPE_TRY(auto ids, parse_ids(input, "stdin"));
    return text.decode(ids);
  }
  TROUPE_TRY(auto ids, text.encode(input, values["plain"].as<bool>()));
  return fmt::format("{{\"ids\":[{}]}}\n", fmt::join(ids, ","));
}

}  // namespace

int run_tokenize(const Command& self, const std::vector<std::string>& args) {
  po::options_description own("Options of tokenize");
  auto add = own.add_options();
  add("decode,d", po::bool_switch(), "{\"ids\":[...]} on stdin -> text on stdout");
  add("plain", po::bool_switch(), "special tokens in the text are text");
  auto parsed = parse_command_line(self, args, own, 0);
  if (!parsed) return fail(self, parsed.error(), kExitUsage);
  if (parsed.value().help) return kExitOk;
  auto text = open_text(parsed.value().common);
  if (!text) return fail(self, text.error(), kExitStart);
  auto output = convert(text.value(), parsed.value().values);
  if (!output) return fail(self, output.error(), kExitFailed);
  const auto written = write_all(1, output.value());
  return written ? kExitOk : fail(self, written.error(), kExitClosed);
}

}  // namespace troupe::tools
