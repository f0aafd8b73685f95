// OpenAI's Python client against the program and the default model; the cases are openai_client.py's.
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "tests/tools/program/spawn.h"

namespace troupe::serve {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && std::filesystem::exists(value) ? value : "";
}

// case -> what went wrong.
const std::map<std::string, std::string>& outcomes() {
  static const std::map<std::string, std::string> all = [] {
    std::map<std::string, std::string> out;
    const tools::Ran ran = tools::run_program(
        variable("TROUPE_CLIENT_PYTHON"), {"tests/tools/serve/openai_client.py", "tools/troupe/troupe", variable("TROUPE_DEFAULT_MODEL")});
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

class OpenAiClient : public ::testing::TestWithParam<const char*> {};

TEST_P(OpenAiClient, Works) {
  if (variable("TROUPE_CLIENT_PYTHON").empty()) {
    GTEST_SKIP() << "the openai package is not there (TROUPE_CLIENT_PYTHON): tools/dev setup could not install it";
  }
  if (variable("TROUPE_DEFAULT_MODEL").empty()) {
    GTEST_SKIP() << "the default model is not there (TROUPE_DEFAULT_MODEL): tools/dev setup could not fetch it";
  }
  const auto at = outcomes().find(GetParam());
  ASSERT_NE(at, outcomes().end()) << "the script did not get to it";
  EXPECT_EQ(at->second, "");
}

INSTANTIATE_TEST_SUITE_P(Cases, OpenAiClient,
                         ::testing::Values("models", "chat", "chat_stream", "chat_logprobs", "completions", "completion_logprobs", "stop",
                                           "n_answers", "same_as_run", "errors", "hang_up", "trace", "metrics", "sigterm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace troupe::serve
