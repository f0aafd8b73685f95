// What `troupe trace html` and `perfetto` write, in a real browser; the cases are browser.py's.
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "tests/tools/program/spawn.h"

namespace troupe::tools {
namespace {

// The Python that has selenium; empty: the browser is not installed.
std::string browser_python() {
  const char* value = std::getenv("TROUPE_BROWSER_PYTHON");
  return value != nullptr && std::filesystem::exists(value) && std::filesystem::exists("/usr/bin/chromium") ? value : "";
}

// case -> what went wrong.
const std::map<std::string, std::string>& outcomes() {
  static const std::map<std::string, std::string> all = [] {
    std::map<std::string, std::string> out;
    const Ran ran = run_program(browser_python(), {"tests/tools/trace/browser.py", "tools/troupe/troupe",
                                                   "tests/golden/tiny-llama/tiny-llama.F32.gguf", ::testing::TempDir()});
    std::istringstream in(ran.out);
    for (std::string line; std::getline(in, line);) {
      const boost::json::value v = boost::json::parse(line);
      out[std::string(v.at("case").as_string())] = v.at("error").is_null() ? "" : std::string(v.at("error").as_string());
    }
    EXPECT_EQ(ran.status, 0) << ran.err;
    return out;
  }();
  return all;
}

class Browser : public ::testing::TestWithParam<const char*> {};

TEST_P(Browser, Works) {
  if (browser_python().empty()) GTEST_SKIP() << "Chromium is not installed: `tools/dev browser` does that, and runs these";
  const auto at = outcomes().find(GetParam());
  ASSERT_NE(at, outcomes().end()) << "the script did not get to it";
  EXPECT_EQ(at->second, "");
}

INSTANTIATE_TEST_SUITE_P(Cases, Browser,
                         ::testing::Values("draws", "filters", "shows_a_clicked_message", "follows_causes", "zooms_and_finds_steps",
                                           "needs_no_network", "opens_in_perfetto"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace troupe::tools
