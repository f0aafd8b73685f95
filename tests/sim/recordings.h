// What a failed simulation leaves behind, for `troupe trace`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::sim {

// Writes the bytes of a recording to NAME.trace among the test's outputs (outside a test: in the folder for temporary
// files) and returns its path; empty if it could not be written.
std::string leave_recording(const std::vector<std::uint8_t>& bytes, const std::string& name);

// "; look at it: troupe trace check PATH"
std::string look_at(const std::vector<std::uint8_t>& bytes, const std::string& name);
// "; look at them: troupe trace diff PATH PATH"
std::string look_at(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b, const std::string& name);

}  // namespace troupe::sim
