// What a life in which one call of the fake CUDA runtime failed has to look like (R5, R7): every request has its one end, tokens are the
// model's up to an error, and stop says what could not be given back.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/rig.h"
#include "tests/fake_cuda/fixture.h"

namespace troupe::test {

// The call, and when it fails. Only a loss, or a failure at the start, may cost a request anything: what fails once is done again.
struct CudaLife {
  fake_cuda::Fault fault;
  bool while_it_serves = false;

  void expect_ended(const Record& record, std::vector<Token> want) const {
    EXPECT_EQ(record.wrong, "");
    ASSERT_TRUE(record.finish);
    if (record.finish->reason == FinishReason::error) {
      const Error& error = record.finish->error;
      EXPECT_TRUE(fault.sticky || !while_it_serves) << error.what;
      EXPECT_TRUE(error.code == ErrorCode::device_lost || error.code == ErrorCode::device_failed) << error.what;
      want.resize(record.tokens.size());
    }
    EXPECT_EQ(record.tokens, want);
  }

  // `met`: whether the call failed before the stop.
  void expect_stopped(const Result<void>& stopped, bool met) const {
    if (stopped) {
      EXPECT_FALSE(fault.sticky && met) << "the device is lost, and stop does not say so";
      return;
    }
    const Error& error = stopped.error();
    if (!fault.sticky) {
      EXPECT_NE(error.what.find("not given back"), std::string::npos) << error.what;
      return;
    }
    EXPECT_EQ(error.code, ErrorCode::device_lost) << error.what;
    const std::size_t at = error.what.find("abandoned: ");
    ASSERT_NE(at, std::string::npos) << error.what;
    // What it counts is what the fake says is left; the driver has a stream of its own for memory.
    unsigned streams = 0, events = 0;
    ASSERT_EQ(std::sscanf(error.what.c_str() + at, "abandoned: %u streams, %u events", &streams, &events), 2) << error.what;
    if (!met) return;
    const std::vector<std::string> left = fake_cuda::leaks();
    const auto says = [&](unsigned n, const char* what) {
      const std::string begin = std::to_string(n) + what;
      return std::any_of(left.begin(), left.end(), [&](const std::string& leak) { return leak.starts_with(begin); });
    };
    EXPECT_TRUE(says(streams + 1, " streams were")) << error.what;
    EXPECT_TRUE(events == 0 || says(events, " events were")) << error.what;
  }
};

}  // namespace troupe::test
