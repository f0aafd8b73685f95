#include "tools/troupe/runner.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "device/host/driver.h"
#include "device/models/scripted.h"

namespace troupe::tools {
namespace {

class RunnerTest : public ::testing::Test {
 protected:
  void start(std::uint32_t max_live = 1024, TimeNs step_ns = 0) {
    device::ScriptedOptions scripted;
    scripted.step_ns = step_ns;
    auto driver = device::make_host_driver();
    auto model = device::ScriptedModel::load(*driver, scripted);
    ASSERT_TRUE(model.has_value()) << model.error().what;
    RuntimeOptions options;
    options.max_batch = 8;
    options.max_live = max_live;
    auto runtime = Runtime::start(options, std::move(driver), std::move(model).value());
    ASSERT_TRUE(runtime.has_value()) << runtime.error().what;
    runtime_ = std::move(runtime).value();
    runner_ = std::make_unique<Runner>(
        *runtime_,
        [](const RequestLine& line) -> Result<std::vector<Token>> {
          if (const auto* ids = std::get_if<PromptIds>(&line.prompt)) return *ids;
          return Error{ErrorCode::bad_request, line.place + ": no ids"};
        },
        [this](RequestOutcome outcome) {
          outcomes_.push_back(std::move(outcome));
          return keep_going_;
        });
  }
  static RequestLine line(const std::string& json) {
    auto parsed = parse_request_line(json, "f:1");
    if (auto* bad = std::get_if<LineError>(&parsed)) ADD_FAILURE() << bad->error.what;
    return std::get<RequestLine>(std::move(parsed));
  }
  static RequestLine simple(int id, std::uint32_t max_tokens, const std::string& more = "") {
    return line("{\"id\": " + std::to_string(id) + ", \"prompt_ids\": [1, 2, " + std::to_string(id % 100) +
                "], \"ignore_eos\": true, \"max_tokens\": " + std::to_string(max_tokens) + more + "}");
  }
  void run() {
    runner_->close();
    runner_->run();
    EXPECT_TRUE(runtime_->stop().has_value());
  }
  std::map<std::string, RequestOutcome> by_id() const {
    std::map<std::string, RequestOutcome> out;
    for (const RequestOutcome& o : outcomes_) out[o.id] = o;
    return out;
  }

  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Runner> runner_;
  std::vector<RequestOutcome> outcomes_;
  bool keep_going_ = true;
};

TEST_F(RunnerTest, EveryRequestGivesOneOutcome) {
  start();
  for (int i = 0; i < 40; ++i) runner_->add(simple(i, 5 + i % 7));
  run();
  ASSERT_EQ(outcomes_.size(), 40u);
  const auto all = by_id();
  ASSERT_EQ(all.size(), 40u);
  for (int i = 0; i < 40; ++i) {
    const RequestOutcome& o = all.at(std::to_string(i));
    EXPECT_EQ(o.error.code, ErrorCode::none) << o.error.what;
    EXPECT_EQ(o.finish, FinishReason::length);
    EXPECT_EQ(o.token_ids.size(), 5u + i % 7);
    EXPECT_FALSE(o.text.empty());
  }
}

TEST_F(RunnerTest, NothingToDoEnds) {
  start();
  run();
  EXPECT_TRUE(outcomes_.empty());
}

TEST_F(RunnerTest, BadLinesAndPromptsFailAloneAndOthersGoOn) {
  start();
  runner_->add(LineError{"5", {ErrorCode::bad_request, "f:1: wrong"}});
  runner_->add(line(R"({"id": 6, "prompt": "text"})"));
  runner_->add(line(R"({"id": 7, "prompt_ids": [1], "temperature": -1})"));
  runner_->add(line(R"({"id": 8, "prompt_ids": []})"));
  runner_->add(line(R"({"id": 9, "prompt_ids": [99999]})"));
  runner_->add(line(R"({"id": 10, "prompt_ids": [1], "max_tokens": 0})"));
  runner_->add(simple(11, 4));
  run();
  const auto all = by_id();
  ASSERT_EQ(all.size(), 7u);
  for (const char* id : {"5", "6", "7", "8", "9", "10"}) {
    EXPECT_EQ(all.at(id).error.code, ErrorCode::bad_request) << id;
    EXPECT_TRUE(all.at(id).error.what.starts_with("f:1: ")) << all.at(id).error.what;
    EXPECT_TRUE(all.at(id).token_ids.empty());
  }
  EXPECT_EQ(all.at("11").token_ids.size(), 4u);
}

TEST_F(RunnerTest, ASecondRequestWithALiveIdIsRefused) {
  start(1024, 2'000'000);
  runner_->add(simple(3, 50));
  runner_->add(simple(3, 5));
  runner_->add(simple(4, 5));
  run();
  ASSERT_EQ(outcomes_.size(), 3u);
  int refused = 0, finished = 0;
  for (const RequestOutcome& o : outcomes_) {
    if (o.error.code == ErrorCode::bad_request) {
      ++refused;
      EXPECT_EQ(o.id, "3");
    } else {
      ++finished;
      EXPECT_EQ(o.error.code, ErrorCode::none) << o.error.what;
    }
  }
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(finished, 2);
}

TEST_F(RunnerTest, AnIdMayComeAgainOnceItsRequestHasEnded) {
  start();
  runner_->add(simple(3, 2));
  runner_->add(simple(3, 4, ", \"arrive_ms\": 300"));
  run();
  ASSERT_EQ(outcomes_.size(), 2u);
  for (const RequestOutcome& o : outcomes_) EXPECT_EQ(o.error.code, ErrorCode::none) << o.error.what;
}

TEST_F(RunnerTest, OverloadedRequestsWaitTheirTurn) {
  start(2);
  for (int i = 0; i < 20; ++i) runner_->add(simple(i, 6));
  run();
  ASSERT_EQ(outcomes_.size(), 20u);
  for (const RequestOutcome& o : outcomes_) EXPECT_EQ(o.token_ids.size(), 6u) << o.error.what;
}

TEST_F(RunnerTest, CancelsAfterTokensAndAtATime) {
  start(1024, 1'000'000);
  runner_->add(simple(1, 400, ", \"cancel_after_tokens\": 3"));
  runner_->add(simple(2, 400, ", \"cancel_ms\": 20"));
  runner_->add(simple(3, 400, ", \"cancel_after_tokens\": 0"));
  runner_->add(simple(4, 400, ", \"deadline_ms\": 20"));
  runner_->add(simple(5, 10));
  run();
  const auto all = by_id();
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all.at("1").finish, FinishReason::cancelled);
  EXPECT_GE(all.at("1").token_ids.size(), 3u);
  EXPECT_LT(all.at("1").token_ids.size(), 400u);
  EXPECT_EQ(all.at("2").finish, FinishReason::cancelled);
  EXPECT_EQ(all.at("3").finish, FinishReason::cancelled);
  EXPECT_EQ(all.at("4").finish, FinishReason::deadline);
  EXPECT_EQ(all.at("5").finish, FinishReason::length);
}

TEST_F(RunnerTest, AClosedOutputEndsTheRun) {
  keep_going_ = false;
  start(1024, 1'000'000);
  runner_->add(simple(0, 1));
  for (int i = 1; i < 200; ++i) runner_->add(simple(i, 400, ", \"arrive_ms\": " + std::to_string(i * 1000)));
  run();
  EXPECT_EQ(outcomes_.size(), 1u);
}

TEST_F(RunnerTest, AbortFreesWhoWaitsToAdd) {
  start(1, 50'000'000);
  std::thread adder([this] {
    for (std::size_t i = 0; i < Runner::kMaxQueued + 10; ++i) runner_->add(simple(static_cast<int>(i), 400));
    runner_->close();
  });
  std::thread stopper([this] { runner_->abort(); });
  runner_->run();
  adder.join();
  stopper.join();
  EXPECT_TRUE(runtime_->stop().has_value());
}

}  // namespace
}  // namespace troupe::tools
