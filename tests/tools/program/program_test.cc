// The program from outside, on a tiny model: what it writes, and how it ends.
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
namespace {

namespace json = boost::json;

const std::string kModel = "tests/golden/tiny-llama/tiny-llama.F32.gguf";

Ran troupe(std::vector<std::string> args, const std::string& input = "", bool close_output = false) {
  args.insert(args.begin(), {"--model", kModel, "--max-batch", "8"});
  return run_program("tools/troupe/troupe", std::move(args), input, close_output);
}

std::vector<json::object> lines(const std::string& text) {
  std::vector<json::object> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(json::parse(line).as_object());
  return out;
}

std::map<std::string, json::object> by_id(const std::string& text) {
  std::map<std::string, json::object> out;
  for (json::object& o : lines(text)) out[json::serialize(o["id"])] = o;
  return out;
}

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of('\n');
  const auto begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? -1 : begin));
}

std::string file(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// 24 requests of mixed kinds on the tiny model; `stops`: by id, a token to stop at.
std::string workload(const std::map<std::string, std::int64_t>& stops = {}) {
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
std::string workload_with_stops() {
  std::map<std::string, std::int64_t> stops;
  for (const auto& [id, result] : by_id(troupe({"run", "-"}, workload()).out)) {
    const json::array& ids = result.at("token_ids").as_array();
    if (ids.size() > 8 && stops.size() < 12) stops[id] = ids[ids.size() / 2].as_int64();
  }
  EXPECT_GT(stops.size(), 6u);
  return workload(stops);
}

TEST(Program, HelpIsOnStdoutForEveryCommand) {
  for (const char* command : {"generate", "run", "verify", "trace", "tokenize", "logits", "info"}) {
    const Ran ran = run_program("tools/troupe/troupe", {command, "--help"});
    EXPECT_EQ(ran.status, 0) << command;
    EXPECT_TRUE(ran.out.starts_with("usage: troupe " + std::string(command))) << ran.out;
    EXPECT_NE(ran.out.find("Exit status"), std::string::npos) << command;
    EXPECT_EQ(ran.out.find("--fault"), std::string::npos) << "the negative control is not for users";
    EXPECT_EQ(ran.err, "");
  }
  EXPECT_EQ(run_program("tools/troupe/troupe", {"--help"}).status, 0);
}

TEST(Program, AWrongCommandLineIsExitStatus2AndSaysWhat) {
  const std::vector<std::vector<std::string>> wrong = {{},
                                                       {"sing"},
                                                       {"generate"},
                                                       {"generate", "a", "b"},
                                                       {"generate", "--max-tokens", "0", "a", "--colour"},
                                                       {"run", "--depth", "0", "x"},
                                                       {"run", "--depth", "-1", "x"},
                                                       {"run", "--max-batch", "many", "x"},
                                                       {"run", "--device", "gpu", "x"},
                                                       {"run", "--device", "cuda:", "x"},
                                                       {"run", "--device", "cuda:-1", "x"},
                                                       {"run", "--device", "host:1", "x"},
                                                       {"run", "--log-level", "loud", "x"},
                                                       {"logits", "--ids", "1,x", "--out", "y"},
                                                       {"logits", "--ids", "1"},
                                                       {"verify", "--fault", "none", "x"}};
  for (const auto& args : wrong) {
    const Ran ran = run_program("tools/troupe/troupe", args);
    EXPECT_EQ(ran.status, 2) << (args.empty() ? "" : args.back()) << ran.err;
    EXPECT_NE(ran.err, "");
    EXPECT_EQ(ran.out, "");
  }
}

TEST(Program, AModelThatIsNoneIsExitStatus3AndNamesTheFile) {
  const std::string path = file("not.gguf", "GGUFnonsense");
  for (const std::string& model : {path, std::string("/nonexistent.gguf")}) {
    const Ran ran = run_program("tools/troupe/troupe", {"--model", model, "info"});
    EXPECT_EQ(ran.status, 3);
    EXPECT_NE(ran.err.find(model), std::string::npos) << ran.err;
  }
}

// Whatever the build has: no machine has that many devices.
TEST(Program, ACudaDeviceThatIsNotThereIsOneLineThatOffersTheHost) {
  const Ran ran = run_program("tools/troupe/troupe", {"generate", "--device", "cuda:99", "Hello"});
  EXPECT_EQ(ran.status, 3);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err.find("troupe generate: cuda:99 cannot be used: "), 0u) << ran.err;
  EXPECT_NE(ran.err.find("use the host device: --device host:0"), std::string::npos) << ran.err;
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
}

TEST(Program, InfoDescribesModelAndDevice) {
  const Ran ran = troupe({"info"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json::value v = json::parse(ran.out);
  EXPECT_EQ(v.at("model").at("architecture").as_string(), "llama");
  EXPECT_EQ(v.at("device").as_string(), "host:0");
}

TEST(Program, TokenizeGoesBothWays) {
  const std::string text = "Hello, wörld!\n 123";
  const Ran ids = troupe({"tokenize"}, text);
  ASSERT_EQ(ids.status, 0) << ids.err;
  EXPECT_FALSE(json::parse(ids.out).at("ids").as_array().empty());
  const Ran back = troupe({"tokenize", "--decode"}, ids.out);
  EXPECT_EQ(back.status, 0) << back.err;
  EXPECT_EQ(back.out, text);
  EXPECT_EQ(troupe({"tokenize"}, "a\xff").status, 1);
  EXPECT_EQ(troupe({"tokenize", "-d"}, "{\"ids\": [99999999]}").status, 1);
  EXPECT_EQ(troupe({"tokenize", "-d"}, "nonsense").status, 1);
}

TEST(Program, LogitsAreASafetensorsFile) {
  const std::string path = ::testing::TempDir() + "/logits.safetensors";
  const Ran ran = troupe({"logits", "--ids", "1,2,3", "--out", path});
  ASSERT_EQ(ran.status, 0) << ran.err;
  std::ifstream in(path, std::ios::binary);
  std::uint64_t size = 0;
  in.read(reinterpret_cast<char*>(&size), sizeof size);
  std::string header(size, ' ');
  in.read(header.data(), static_cast<std::streamsize>(size));
  const json::value tensor = json::parse(header).at("logits");
  EXPECT_EQ(tensor.at("dtype").as_string(), "F32");
  EXPECT_EQ(tensor.at("shape").at(0).as_int64(), 3);
  const std::int64_t bytes = tensor.at("data_offsets").at(1).as_int64();
  EXPECT_EQ(bytes, 3 * tensor.at("shape").at(1).as_int64() * 4);
  in.seekg(0, std::ios::end);
  EXPECT_EQ(static_cast<std::int64_t>(in.tellg()), bytes + 8 + static_cast<std::int64_t>(size));
  EXPECT_EQ(troupe({"logits", "--ids", "99999999", "--out", path}).status, 1);
  EXPECT_EQ(troupe({"logits", "--ids", "1", "--out", "/nonexistent/x"}).status, 4);
}

TEST(Program, GenerateWritesTheAnswerToStdoutAndFiguresToStderr) {
  const Ran ran = troupe({"generate", "--raw", "--max-tokens", "5", "Hello"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_FALSE(ran.out.empty());
  EXPECT_NE(ran.err.find("5 tokens"), std::string::npos) << ran.err;
  EXPECT_EQ(troupe({"generate", "--raw", "--max-tokens", "5", "-"}, "Hello").out, ran.out);
  EXPECT_EQ(troupe({"generate", "--raw", "a\xff"}).status, 1);
  EXPECT_EQ(troupe({"generate", "--raw", ""}).status, 1);
}

TEST(Program, RunGivesALineForEachRequest) {
  const Ran ran = troupe({"run", "-"}, workload());
  EXPECT_EQ(ran.status, 0) << ran.err << ran.out;
  const auto results = by_id(ran.out);
  ASSERT_EQ(results.size(), 24u);
  for (const auto& [id, result] : results) {
    EXPECT_TRUE(result.contains("text") && result.contains("token_ids") && result.contains("finish") && result.contains("usage")) << id;
  }
  EXPECT_EQ(results.at("1").contains("seed"), true);
  EXPECT_EQ(results.at("7").at("logprobs").as_array().size(), results.at("7").at("token_ids").as_array().size());
}

// A small KV pool, with a folder for what preempted requests had computed: the same tokens, and nothing is left there.
TEST(Program, SpillingChangesNoTokenAndLeavesNoFile) {
  std::string requests;
  for (int i = 0; i < 10; ++i)
    requests += json::serialize(
                    json::object{{"id", i}, {"prompt_ids", json::array{i + 5, 17, 2 * i + 3}}, {"max_tokens", 70}, {"ignore_eos", true}}) +
                "\n";
  const std::string folder = ::testing::TempDir() + "/spilled";
  const auto right = by_id(troupe({"run", "--block-size", "4", "-"}, requests).out);
  const Ran ran = troupe({"run", "--block-size", "4", "--kv-blocks", "60", "--spill-dir", folder, "-"}, requests);
  EXPECT_EQ(ran.status, 0) << ran.err;
  auto results = by_id(ran.out);
  ASSERT_EQ(results.size(), 10u);
  for (auto& [id, result] : results) EXPECT_EQ(result.at("token_ids"), right.at(id).at("token_ids")) << id;
  EXPECT_TRUE(std::filesystem::is_directory(folder));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  const Ran refused = troupe({"run", "--spill-dir", "/nonexistent/no/such", "-"}, requests);
  EXPECT_EQ(refused.status, 3);
  EXPECT_NE(refused.err.find("--spill-dir"), std::string::npos) << refused.err;
}

TEST(Program, BadLinesFailAloneAndTheExitStatusSaysSo) {
  const std::string input = R"({"id": 1, "prompt_ids": [1, 2], "max_tokens": 3}
this is no JSON
{"id": 2, "prompt_ids": [1, 2], "max_tokns": 3}
{"id": 3, "prompt_ids": [], "max_tokens": 3}

{"id": 4, "prompt_ids": [1, 99999999]}
{"id": 5, "prompt_ids": [1], "max_tokens": 0}
{"id": 6, "prompt_ids": [1], "temperature": -1}
{"id": 7, "prompt_ids": [3, 4], "max_tokens": 3}
)";
  const std::string path = file("bad.jsonl", input);
  const Ran ran = troupe({"run", path});
  EXPECT_EQ(ran.status, 1);
  const auto results = by_id(ran.out);
  ASSERT_EQ(results.size(), 8u);
  EXPECT_EQ(results.at("1").at("token_ids").as_array().size(), 3u);
  EXPECT_EQ(results.at("7").at("token_ids").as_array().size(), 3u);
  const std::map<std::string, std::string> places = {{"null", ":2: "}, {"2", ":3: "}, {"3", ":4: "},
                                                     {"4", ":6: "},    {"5", ":7: "}, {"6", ":8: "}};
  for (const auto& [id, place] : places) {
    const std::string message(results.at(id).at("error").at("message").as_string());
    EXPECT_TRUE(message.starts_with(path + place)) << message;
  }
  EXPECT_NE(std::string(results.at("2").at("error").at("message").as_string()).find("max_tokns"), std::string::npos);
}

TEST(Program, ASecondRequestWithALiveIdIsRefused) {
  const Ran ran = troupe({"run", "-"}, R"({"id": "a", "prompt_ids": [1, 2], "max_tokens": 200, "ignore_eos": true}
{"id": "a", "prompt_ids": [1, 2], "max_tokens": 2}
)");
  EXPECT_EQ(ran.status, 1);
  const auto results = lines(ran.out);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_TRUE(results[0].contains("error"));
  EXPECT_FALSE(results[1].contains("error"));
}

TEST(Program, AClosedOutputIsExitStatus4) {
  const Ran run = troupe({"run", "-"}, workload(), true);
  EXPECT_EQ(run.status, 4) << run.err;
  EXPECT_NE(run.err.find("stdout"), std::string::npos) << run.err;
  EXPECT_EQ(troupe({"generate", "--raw", "Hello"}, "", true).status, 4);
}

TEST(Program, AMissingInputIsExitStatus3) {
  EXPECT_EQ(troupe({"run", "/nonexistent.jsonl"}).status, 3);
  EXPECT_EQ(troupe({"verify", "/nonexistent.jsonl"}).status, 3);
  EXPECT_EQ(troupe({"verify", file("empty.jsonl", "\n")}).status, 3);
}

TEST(Program, VerifySaysIdenticalAndTheNegativeControlDiverges) {
  const std::string path = file("workload.jsonl", workload_with_stops());
  const Ran same = troupe({"verify", path});
  EXPECT_EQ(last_line(same.out), "identical") << same.out << same.err;
  EXPECT_EQ(same.status, 0);
  const Ran fault = troupe({"verify", "--fault", "keep-overrun", path});
  EXPECT_TRUE(last_line(fault.out).starts_with("diverged at request ")) << fault.out;
  EXPECT_EQ(fault.status, 1);
}

TEST(Program, VerifyIsVacuousWhereNothingRunsAhead) {
  const std::string path = file("one.jsonl", "{\"id\": 1, \"prompt_ids\": [1, 2], \"max_tokens\": 1}\n");
  const Ran ran = troupe({"verify", path});
  EXPECT_EQ(last_line(ran.out), "vacuous") << ran.out;
  EXPECT_EQ(ran.status, 1);
}

// Runs it until the recordings that it makes lack nothing: on a machine that is too busy the recorder loses records, and says so.
Ran recorded(const std::vector<std::string>& args, const std::string& input, const std::vector<std::string>& recordings) {
  Ran ran;
  for (int n = 0; n < 8; ++n) {
    ran = troupe(args, input);
    const bool whole = std::all_of(recordings.begin(), recordings.end(), [](const std::string& r) {
      return troupe({"trace", "check", r}).out.find("the recorder had no room") == std::string::npos;
    });
    if (whole) break;
  }
  return ran;
}

TEST(Program, TraceChecksReplaysAndComparesWhatWasRecorded) {
  const std::string path = file("recorded.jsonl", workload_with_stops()), base = ::testing::TempDir() + "/recorded";
  const std::string sync = base + ".depth-1", ahead = base + ".ahead-2";
  const Ran same = recorded({"verify", "--trace", base, path}, "", {sync, ahead});
  ASSERT_EQ(last_line(same.out), "identical") << same.out << same.err;
  for (const std::string& recording : {sync, ahead}) {
    const Ran check = troupe({"trace", "check", recording});
    EXPECT_TRUE(check.out.starts_with("the rules hold: ")) << check.out << check.err;
    EXPECT_EQ(check.status, 0);
    const Ran replay = troupe({"trace", "replay", "--state", recording});
    EXPECT_TRUE(replay.out.starts_with("the same: ")) << replay.out << replay.err;
    EXPECT_NO_THROW((void)json::parse(replay.out.substr(replay.out.find('\n') + 1))) << replay.out;
  }
  const Ran diff = troupe({"trace", "diff", sync, ahead});
  EXPECT_TRUE(diff.out.starts_with("same streams: 24 requests")) << diff.out << diff.err;
  EXPECT_NE(diff.out.find("  depth: 1 in A, 2 in B\n"), std::string::npos) << diff.out;
  EXPECT_EQ(diff.status, 0);
  EXPECT_NE(troupe({"trace", "print", "--type", "Launch", ahead}).out.find("scheduler > router  Launch "), std::string::npos);
  EXPECT_NE(troupe({"trace", "show", ahead, "scheduler:3"}).out.find("causes, up to the root:"), std::string::npos);
  EXPECT_NE(troupe({"trace", "request", ahead, "1"}).out.find("was accepted"), std::string::npos);
  EXPECT_NE(troupe({"trace", "stats", ahead}).out.find("24 requests"), std::string::npos);
  EXPECT_NO_THROW((void)json::parse(troupe({"trace", "perfetto", ahead}).out));
  EXPECT_EQ(troupe({"trace", "check", path}).status, 3) << "it is no recording";
  EXPECT_EQ(troupe({"trace", "show", ahead, "nobody:1"}).status, 2);
  EXPECT_EQ(troupe({"trace", "polish", ahead}).status, 2);
}

// Every kind of workload: arrivals, stops, cancels, sampling, preemption, files of preempted sequences, a deadline, adapters
// that come and go. The rules hold over what was recorded, and the cores send every message again.
TEST(Program, TheRulesHoldOverRecordingsOfEveryWorkload) {
  const std::string folder = "tests/golden/tiny-llama/adapters/", arrivals = workload_with_stops();
  std::string crowd, adapters;
  for (int i = 0; i < 12; ++i) {
    json::object o{{"id", i}, {"prompt_ids", json::array{i + 5, 17, 2 * i + 3}}, {"max_tokens", 70}, {"ignore_eos", true}};
    if (i == 7) o["deadline_ms"] = 40;
    crowd += json::serialize(o) + "\n";
    o["adapter"] = i % 3 == 0 ? "" : i % 3 == 1 ? "a" : "b";
    if (i % 3 == 0) o.erase("adapter");
    o["arrive_ms"] = 3 * i;
    for (const char* name : {"a", "b"})
      if (i % 6 == 0)
        adapters += R"({"lora": {"load": {"name": ")" + std::string(name) + R"(", "dir": ")" + folder +
                    (*name == 'a' ? "all-r4" : "qv-r8") + R"("}}, "at_ms": )" + std::to_string(3 * i) + "}\n";
    adapters += json::serialize(o) + "\n";
  }
  const std::vector<std::string> small = {"--block-size", "4", "--kv-blocks", "60"};
  const std::string spilled = ::testing::TempDir() + "/spilled-here";
  struct {
    const char* name;
    const std::string& requests;
    std::vector<std::string> flags;
    const char* shows;  // a type of message without which the workload is not what it says
  } const kinds[] = {{"arrivals", arrivals, {}, "CancelRequest"},
                     {"preempted", crowd, small, "Apply"},
                     {"spilled", crowd, {"--block-size", "4", "--kv-blocks", "60", "--spill-dir", spilled}, "StateRead"},
                     {"adapters", adapters, {"--max-loras", "2"}, "ChangeTable"}};
  for (const auto& kind : kinds) {
    for (const char* depth : {"1", "2", "3", "4"}) {
      const std::string what = std::string(kind.name) + " at depth " + depth, recording = ::testing::TempDir() + "/every.trace";
      std::vector<std::string> args = {"run", "--depth", depth, "--trace", recording};
      args.insert(args.end(), kind.flags.begin(), kind.flags.end());
      args.push_back("-");
      const Ran ran = recorded(args, kind.requests, {recording});
      ASSERT_LE(ran.status, 1) << what << ran.err;
      const Ran check = troupe({"trace", "check", recording});
      EXPECT_TRUE(check.out.starts_with("the rules hold: ")) << what << check.out << check.err;
      const Ran replay = troupe({"trace", "replay", recording});
      std::uint64_t taken = 0, sent = 1, of = 0;
      EXPECT_EQ(std::sscanf(replay.out.c_str(), "the same: %lu messages taken up, %lu of %lu sent again", &taken, &sent, &of), 3)
          << what << replay.out << replay.err;
      EXPECT_EQ(sent, of) << what;
      EXPECT_GT(sent, 300u) << what;
      EXPECT_NE(troupe({"trace", "print", "--type", kind.shows, recording}).out, "") << what;
    }
  }
}

TEST(Program, TraceNamesTheOverRunThatVerifyFound) {
  const std::string path = file("faulty.jsonl", workload_with_stops()), base = ::testing::TempDir() + "/faulty";
  const Ran fault = troupe({"verify", "--trace", base, "--fault", "keep-overrun", path});
  EXPECT_TRUE(last_line(fault.out).starts_with("diverged at request ")) << fault.out;
  EXPECT_NE(fault.err.find("troupe trace diff " + base + ".depth-1 " + base + ".ahead-2"), std::string::npos) << fault.err;
  const Ran diff = troupe({"trace", "diff", base + ".depth-1", base + ".ahead-2"});
  EXPECT_TRUE(diff.out.starts_with("diverged at request ")) << diff.out << diff.err;
  EXPECT_NE(diff.out.find("an over-run: token "), std::string::npos) << diff.out;
  EXPECT_EQ(diff.status, 1);
  const Ran check = troupe({"trace", "check", base + ".ahead-2"});
  EXPECT_TRUE(check.out.starts_with("R2 is broken: ")) << check.out << check.err;
  EXPECT_EQ(check.status, 1);
}

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

TEST(Program, ARedactedRecordingHasNeitherTextsNorIds) {
  const std::string recording = ::testing::TempDir() + "/redacted.trace";
  const std::string input = R"({"id": 1, "prompt_ids": [101, 97, 113, 89, 103, 107], "max_tokens": 8, "stop": ["a secret stop"]})";
  const std::string prompt = "\x06\x65\x61\x71\x59\x67\x6b";  // as it is encoded: the length, then the ids
  ASSERT_EQ(troupe({"run", "--trace", recording, "--trace-redact", "-"}, input + "\n").status, 0);
  EXPECT_EQ(contents(recording).find("secret"), std::string::npos);
  EXPECT_EQ(contents(recording).find(prompt.substr(1)), std::string::npos);
  const Ran check = troupe({"trace", "check", recording});
  EXPECT_NE(check.out.find("the rules hold"), std::string::npos) << check.out << check.err;
  EXPECT_NE(check.out.find("it is redacted"), std::string::npos) << check.out;
  EXPECT_NE(troupe({"trace", "request", recording, "1"}).out.find("6 prompt tokens"), std::string::npos) << "lengths stay";
  ASSERT_EQ(troupe({"run", "--trace", recording, "-"}, input + "\n").status, 0);
  EXPECT_NE(contents(recording).find("secret"), std::string::npos) << "the control: it would be found";
  EXPECT_NE(contents(recording).find(prompt), std::string::npos) << "the control: they would be found";
}

// A program that is asked while it runs: one request has ended, and it waits for the next.
TEST(Program, Sigusr1WritesTheLastMessagesOutAndSaysWhere) {
  const std::string folder = ::testing::TempDir() + "/usr1";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const std::string script = R"(mkfifo "$3/in"
TMPDIR="$3" "$1" --model "$2" --max-batch 8 run - <"$3/in" >"$3/out" 2>"$3/err" & pid=$!
exec 9>"$3/in"
echo '{"id": 1, "prompt_ids": [5, 6, 7], "max_tokens": 20, "ignore_eos": true}' >&9
until [ -s "$3/out" ]; do kill -0 $pid || exit 91; sleep 0.05; done
kill -USR1 $pid
until grep -q 'last messages' "$3/err"; do kill -0 $pid || exit 92; sleep 0.05; done
echo '{"id": 2, "prompt_ids": [5, 6, 7], "max_tokens": 3, "ignore_eos": true}' >&9
exec 9>&-
wait $pid)";
  const Ran ran = run_program("/bin/sh", {"-c", script, "sh", "tools/troupe/troupe", kModel, folder});
  const std::string err = contents(folder + "/err");
  ASSERT_EQ(ran.status, 0) << ran.err << err << "it goes on, and ends as if nothing had happened";
  EXPECT_EQ(lines(contents(folder + "/out")).size(), 2u);
  const std::string said = "troupe: the last messages are in ";
  const std::size_t at = err.find(said);
  ASSERT_NE(at, std::string::npos) << err;
  const std::string path = err.substr(at + said.size(), err.find('\n', at) - at - said.size());
  EXPECT_TRUE(path.starts_with(folder + "/troupe-flight-")) << path;
  const Ran check = troupe({"trace", "check", path});
  EXPECT_TRUE(check.out.starts_with("the rules hold: ")) << check.out << check.err;
  const std::string story = troupe({"trace", "request", path, "1"}).out;
  EXPECT_NE(story.find("got token 19"), std::string::npos) << story;
  EXPECT_EQ(troupe({"trace", "request", path, "2"}).status, 3) << "it came later";
}

}  // namespace
}  // namespace troupe::tools
