// The rules of Chrome's Trace Event Format (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), as far as
// `troupe trace perfetto` uses it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe::tools {

struct ChromeTrace {
  std::vector<std::string> violations;                        // the first 20
  std::map<std::string, std::vector<std::string>> slices;     // by track's name: the names, in order
  std::map<std::string, std::vector<std::int64_t>> counters;  // by name: the values
  std::size_t arrows = 0;
};

// Never throws: what is no JSON is a violation.
ChromeTrace check_chrome_trace(const std::string& text);

}  // namespace troupe::tools
