// The program run on a tiny model, its output as lines and JSON, and a workload for it.
#pragma once

#include <gtest/gtest.h>
#include <boost/json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/tools/program/spawn.h"

namespace troupe::tools {

namespace json = boost::json;

inline const std::string kModel = "tests/golden/tiny-llama/tiny-llama.F32.gguf";

inline Ran troupe(std::vector<std::string> args, const std::string& input = "", bool close_output = false) {
  args.insert(args.begin(), {"--model", kModel, "--max-batch", "8"});
  return run_program("tools/troupe/troupe", std::move(args), input, close_output);
}

inline std::vector<json::object> lines(const std::string& text) {
  std::vector<json::object> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(json::parse(line).as_object());
  return out;
}

inline std::map<std::string, json::object> by_id(const std::string& text) {
  std::map<std::string, json::object> out;
  for (json::object& o : lines(text)) out[json::serialize(o["id"])] = o;
  return out;
}

inline std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of('\n');
  const auto begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? -1 : begin));
}

inline std::string file(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// 24 requests of mixed kinds on the tiny model; `stops`: by id, a token to stop at.
inline std::string workload(const std::map<std::string, std::int64_t>& stops = {}) {
  std::string out;
  for (int i = 0; i < 24; ++i) {
    json::object o{{"id", i}, {"prompt_ids", json::array{i + 5, 17, 2 * i + 3}}, {"max_tokens", 1 + i * 7 % 60}, {"arrive_ms", i * 3}};
    if (i % 4 == 1) {
      o["temperature"] = 0.9;
      o["seed"] = i;
    }
    if (const auto stop = stops.find(std::to_string(i)); stop != stops.end()) o["stop_token_ids"] = json::array{stop->second};
    if (i % 6 == 0) o["min_tokens"] = 1 + i % 5;
    if (i % 6 == 3) o["think"] = json::object{{"close", 40 + i}, {"bar", json::array{20, 60}}};
    if (i % 12 == 5) o["cancel_after_tokens"] = 4;
    if (i % 12 == 7) o["logprobs"] = 2;
    out += json::serialize(o) + "\n";
  }
  return out;
}

// The same, with stops in the middle of half of the outputs: what was launched ahead then is an over-run.
inline std::string workload_with_stops() {
  std::map<std::string, std::int64_t> stops;
  for (const auto& [id, result] : by_id(troupe({"run", "-"}, workload()).out)) {
    const json::array& ids = result.at("token_ids").as_array();
    if (ids.size() > 8 && stops.size() < 12) stops[id] = ids[ids.size() / 2].as_int64();
  }
  EXPECT_GT(stops.size(), 6u);
  return workload(stops);
}

}  // namespace troupe::tools
