// What `troupe run` and `troupe verify` do with adapters: a workload with LoRA commands between its requests gives the same
// streams at every depth (R1), and what a line gets follows from its time and its place alone.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "device/models/load.h"
#include "tests/golden/golden.h"
#include "tools/troupe/compare.h"
#include "tools/troupe/runner.h"

namespace troupe::tools {
namespace {

const std::string kFolder = "tests/golden/tiny-llama/";

// A line of the file, whose place is its number.
std::string load(const std::string& name, const std::string& adapter, int at_ms) {
  return fmt::format(R"({{"lora": {{"load": {{"name": "{}", "dir": "{}adapters/{}"}}}}, "at_ms": {}}})", name, kFolder, adapter, at_ms);
}
std::string command(const std::string& what, const std::string& name, int at_ms) {
  return fmt::format(R"({{"lora": {{"{}": "{}"}}, "at_ms": {}}})", what, name, at_ms);
}
std::string request(int id, const std::string& adapter, const std::vector<std::uint32_t>& prompt, int at_ms, const std::string& more = "") {
  return fmt::format(R"({{"id": {}, "adapter": "{}", "prompt_ids": [{}], "max_tokens": 30, "ignore_eos": true, "arrive_ms": {}{}}})", id,
                     adapter, fmt::join(prompt, ", "), at_ms, more);
}

struct Pass {
  std::vector<RequestOutcome> outcomes;  // in the order of the lines
  std::uint64_t steps_ahead = 0;
};

Pass run(const std::vector<std::string>& lines, std::uint32_t depth, actors::SchedulerFault fault = actors::SchedulerFault::none) {
  device::LoadOptions options;
  options.threads = 1;
  options.max_loras = 6;  // one for each that the workload loads: what has to go would depend on who has users just then
  options.depth = depth;
  auto loaded = device::load_model(kFolder + "tiny-llama.Q4_1.gguf", options);
  if (!loaded) throw std::runtime_error(loaded.error().what);
  RuntimeOptions settings;
  settings.depth = depth;
  settings.fault = fault;
  auto runtime = Runtime::start(settings, std::move(loaded.value().driver), std::move(loaded.value().model));
  if (!runtime) throw std::runtime_error(runtime.error().what);
  Pass pass;
  pass.outcomes.resize(lines.size());
  Runner runner(
      *runtime.value(), [](const RequestLine& line) -> Result<std::vector<Token>> { return std::get<PromptIds>(line.prompt); },
      [&](RequestOutcome outcome) {
        const auto at = static_cast<std::size_t>(std::stoul(outcome.place));
        pass.outcomes[at] = std::move(outcome);
        return true;
      });
  for (std::size_t i = 0; i < lines.size(); ++i) {
    auto parsed = parse_request_line(lines[i], std::to_string(i));
    if (const auto* bad = std::get_if<LineError>(&parsed)) throw std::runtime_error(bad->error.what);
    runner.add(std::get<RequestLine>(std::move(parsed)));
  }
  runner.close();
  runner.run();
  pass.steps_ahead = runtime.value()->metrics().scheduler.steps_ahead;
  EXPECT_TRUE(runtime.value()->stop());
  return pass;
}

// The same prompts under two adapters that come, are replaced under their names, stand for nobody's and go.
std::vector<std::string> workload() {
  const auto cases = golden::read_cases(kFolder + "golden.json");
  std::vector<std::string> lines{load("standing", "pattern", 0)};
  int id = 0;
  for (int round = 0; round < 4; ++round) {
    const int at = 15 * round;
    lines.push_back(load("changing", round % 2 == 0 ? "all-r4" : "qv-r8", at));
    if (round == 1) lines.push_back(command("rotate", "changing", at));
    for (std::size_t k = 1; k < 4; ++k) {
      for (const char* adapter : {"", "standing", "changing"})
        lines.push_back(request(++id, adapter, cases[k].prompt, at + static_cast<int>(k)));
    }
    if (round == 2) {
      lines.push_back(command("rotate", "", at + 3));
      lines.push_back(load("changing", "no-such-folder", at + 3));
      lines.push_back(command("unload", "changing", at + 3));
      lines.push_back(request(++id, "changing", cases[1].prompt, at + 3));
    }
  }
  return lines;
}

TEST(LoraRun, EveryDepthGivesTheStreamsOfDepthOne) {
  const auto lines = workload();
  const Pass sync = run(lines, 1);
  for (const std::uint32_t depth : {1u, 2u, 4u}) {
    const Pass other = run(lines, depth);
    const auto d = first_divergence(sync.outcomes, other.outcomes);
    EXPECT_FALSE(d) << "depth " << depth << ": request " << d->id << " token " << d->token;
    if (depth > 1) {
      EXPECT_GT(other.steps_ahead, 0u);
    }
  }
}

TEST(LoraRun, ALineSeesTheCommandsBeforeIt) {
  const auto lines = workload();
  const Pass pass = run(lines, 2);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const RequestOutcome& o = pass.outcomes[i];
    const bool missing = lines[i].find("no-such-folder") != std::string::npos;
    const bool gone = i > 0 && lines[i - 1].find("unload") != std::string::npos;
    EXPECT_EQ(o.error.code, missing ? ErrorCode::bad_adapter : gone ? ErrorCode::unknown_adapter : ErrorCode::none) << lines[i];
    if (o.lora || gone) continue;
    EXPECT_EQ(o.token_ids.size(), 30u) << lines[i];
  }
  const auto first_of = [&](std::size_t from, const std::string& adapter) {
    std::size_t i = from;
    while (lines[i].find("\"adapter\": \"" + adapter + "\"") == std::string::npos) ++i;
    return std::pair{i, pass.outcomes[i].token_ids};
  };
  std::vector<std::size_t> rounds;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find("adapters/all-r4") != std::string::npos || lines[i].find("adapters/qv-r8") != std::string::npos) rounds.push_back(i);
  }
  ASSERT_EQ(rounds.size(), 4u);
  const auto changing = [&](std::size_t round) { return first_of(rounds[round], "changing").second; };
  EXPECT_EQ(changing(0), changing(2));
  EXPECT_EQ(changing(1), changing(3));
  EXPECT_NE(changing(0), changing(1)) << "loaded again, it is another adapter, and finds nothing of the old one's";
  const auto none = [&](std::size_t round) { return first_of(rounds[round], "").second; };
  EXPECT_EQ(none(1), changing(1)) << "rotated to";
  EXPECT_EQ(none(0), none(3)) << "the base model, before it and after";
  EXPECT_NE(none(0), none(1));
}

// The comparison notices a runtime that keeps over-runs, here as without adapters.
TEST(LoraRun, KeptOverrunsAreFound) {
  const auto cases = golden::read_cases(kFolder + "golden.json");
  const std::string loaded = load("a", "all-r4", 0);
  const Pass whole = run({loaded, request(1, "a", cases[1].prompt, 0), request(2, "", cases[2].prompt, 0)}, 1);
  std::vector<std::string> lines{loaded};
  for (int id = 1; id <= 2; ++id) {
    const Token stop = whole.outcomes[static_cast<std::size_t>(id)].token_ids[10];
    lines.push_back(
        request(id, id == 1 ? "a" : "", cases[static_cast<std::size_t>(id)].prompt, 0, fmt::format(R"(, "stop_token_ids": [{}])", stop)));
  }
  const Pass sync = run(lines, 1);
  EXPECT_FALSE(first_divergence(sync.outcomes, run(lines, 2).outcomes));
  EXPECT_TRUE(first_divergence(sync.outcomes, run(lines, 2, actors::SchedulerFault::keep_overrun).outcomes));
}

}  // namespace
}  // namespace troupe::tools
