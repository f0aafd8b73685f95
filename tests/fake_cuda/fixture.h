// A test on the fake CUDA runtime: fresh before, and afterwards nothing was done wrong and nothing is left, but for what
// the test claims.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fake_cuda/fake_cuda.h"

namespace fake_cuda {

// Fails for every report and every leak, and forgets them.
inline void expect_clean() {
  for (const std::string& report : take_reports()) ADD_FAILURE() << report;
  for (const std::string& leak : leaks()) ADD_FAILURE() << leak;
  reset();
}

inline bool any_says(const std::vector<std::string>& sentences, std::string_view part) {
  return std::any_of(sentences.begin(), sentences.end(), [&](const std::string& s) { return s.find(part) != std::string::npos; });
}

// Every report so far says `part`, and there is one.
inline void claim_reports(std::string_view part) {
  const std::vector<std::string> reports = take_reports();
  EXPECT_FALSE(reports.empty()) << "not caught: " << part;
  for (const std::string& report : reports) EXPECT_NE(report.find(part), std::string::npos) << report;
}

// What was lost with its device: something is left, and it is forgotten.
inline void claim_leaks() {
  EXPECT_FALSE(leaks().empty());
  for (const std::string& report : take_reports()) ADD_FAILURE() << report;
  reset();
}

class Fixture : public ::testing::Test {
 protected:
  void SetUp() override { reset(); }
  void TearDown() override { expect_clean(); }
};

}  // namespace fake_cuda
