#include "tools/troupe/result_json.h"

#include <gtest/gtest.h>
#include <boost/json.hpp>

#include <limits>

namespace troupe::tools {
namespace {

namespace json = boost::json;

TEST(ResultJson, AFinishedRequest) {
  RequestOutcome o;
  o.id = "\"a\"";
  o.token_ids = {1, 2};
  o.text = "line\n\"q\" ü";
  o.finish = FinishReason::length;
  o.usage = {3, 2, 0};
  const std::string line = to_json_line(o);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(json::parse(line), json::parse(R"({"id": "a", "text": "line\n\"q\" ü", "token_ids": [1, 2], "finish": "length",
      "usage": {"prompt_tokens": 3, "completion_tokens": 2, "cached_tokens": 0}})"));
}

TEST(ResultJson, SeedAndLogprobsWhereTheyMatter) {
  RequestOutcome o;
  o.id = "5";
  o.token_ids = {1};
  o.finish = FinishReason::stop;
  o.sampled = true;
  o.seed = 18446744073709551615u;
  o.logprobs = {{-0.5f, {{1, -0.5f}, {2, -std::numeric_limits<float>::infinity()}}}};
  const json::value v = json::parse(to_json_line(o));
  EXPECT_EQ(v.at("seed").as_uint64(), 18446744073709551615u);
  EXPECT_EQ(v.at("logprobs"),
            json::parse(R"([{"id": 1, "logprob": -0.5, "best": [{"id": 1, "logprob": -0.5}, {"id": 2, "logprob": null}]}])"));
}

TEST(ResultJson, AnErrorKeepsWhatWasGenerated) {
  RequestOutcome o;
  o.error = {ErrorCode::bad_request, "f:1: wrong"};
  EXPECT_EQ(json::parse(to_json_line(o)), json::parse(R"({"id": null, "error": {"code": "bad_request", "message": "f:1: wrong"}})"));
  o.token_ids = {4};
  o.text = "x";
  EXPECT_EQ(json::parse(to_json_line(o)).at("token_ids"), json::parse("[4]"));
}

}  // namespace
}  // namespace troupe::tools
