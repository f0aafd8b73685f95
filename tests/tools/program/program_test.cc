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

#include "tests/tools/program/rig.h"

namespace troupe::tools {
namespace {

TEST(Program, HelpIsOnStdoutForEveryCommand) {
  for (const char* command : {"generate", "run", "verify", "trace", "tokenize", "logits", "info", "status", "top", "drain", "undrain"}) {
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
                                                       {"run", "--device", "host:", "x"},
                                                       {"run", "--devices", "host:0,host:0", "x"},
                                                       {"run", "--devices", "host:0,", "--device", "host:1", "x"},
                                                       {"run", "--devices", "host:0,tpu:1", "x"},
                                                       {"run", "--devices", "", "x"},
                                                       {"run", "--placement", "anywhere", "x"},
                                                       {"status", "--server", "nowhere"},
                                                       {"top", "--interval", "0"},
                                                       {"drain"},
                                                       {"undrain", "a", "b"},
                                                       {"run", "--log-level", "loud", "x"},
                                                       {"run", "--flight", "-1", "x"},
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

TEST(Program, WhatIsForCudaOnlyOrGivesR1UpIsRefusedInASentence) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> refused = {
      {{"run", "--gemm", "mine", "x"}, "--gemm must be own or cublaslt, and is mine"},
      {{"run", "--gemm", "cublaslt", "x"}, "--gemm cublaslt is for --device cuda:N"},
      {{"run", "--streams", "3", "x"}, "--streams 3 is for --device cuda:N"},
      {{"verify", "--gemm", "cublaslt", "--device", "cuda:0", "x"}, "--gemm cublaslt gives R1 up"}};
  for (const auto& [args, sentence] : refused) {
    const Ran ran = run_program("tools/troupe/troupe", args);
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_NE(ran.err.find(sentence), std::string::npos) << ran.err;
    EXPECT_EQ(ran.out, "");
  }
}

TEST(Program, FlagsMayStandBeforeTheCommand) {
  const std::vector<std::vector<std::string>> flags = {{"--flight", "8"}, {"--flight=8"}, {"-m", "x"}, {"--exact"}, {"--spill-limit", "1"}};
  for (std::vector<std::string> args : flags) {
    args.push_back("sing");
    const Ran ran = run_program("tools/troupe/troupe", args);
    EXPECT_NE(ran.err.find("no command \"sing\""), std::string::npos) << args[0] << ran.err;
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

// Each device gives what one alone gives, and a command for one device says so.
TEST(Program, SeveralDevicesGiveTheSameStreams) {
  const std::string requests = workload_with_stops();
  const auto one = by_id(troupe({"run", "--threads", "1", "-"}, requests).out);
  for (const char* placement : {"least-work", "round-robin", "pinned"}) {
    const Ran ran = troupe({"run", "--devices", "host:0,host:1", "--threads", "1", "--placement", placement, "-"}, requests);
    EXPECT_EQ(ran.status, 0) << ran.err;
    const auto two = by_id(ran.out);
    ASSERT_EQ(two.size(), one.size());
    for (const auto& [id, result] : one) {
      const auto cancelled = [](const json::object& r) { return r.at("finish").as_string() == "cancelled"; };
      json::array mine = two.at(id).at("token_ids").as_array(), wanted = result.at("token_ids").as_array();
      if (cancelled(result) || cancelled(two.at(id))) {  // when a cancel comes is the machine's affair: one begins as the other
        const std::size_t both = std::min(mine.size(), wanted.size());
        mine.resize(both), wanted.resize(both);
      }
      EXPECT_EQ(json::serialize(mine), json::serialize(wanted)) << id;
    }
  }
  const std::string path = file("several.jsonl", requests);
  const Ran verified = troupe({"verify", "--devices", "host:0,host:3", "--threads", "1", path});
  EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
  EXPECT_EQ(last_line(verified.out), "identical");
  EXPECT_NE(verified.out.find("depth 2 on 2 devices: "), std::string::npos) << verified.out;
  const Ran info = troupe({"info", "--devices", "host:0,host:1"});
  EXPECT_EQ(info.status, 3);
  EXPECT_NE(info.err.find("one device"), std::string::npos) << info.err;
}

TEST(Program, ReplicasAreRecordedApartAndEachPartHolds) {
  const std::string path = ::testing::TempDir() + "/several.trace";
  ASSERT_EQ(troupe({"run", "--devices", "host:0,host:1", "--threads", "1", "--trace", path, "-"}, workload()).status, 0);
  for (const char* part : {".front", ".r0", ".r1"}) {
    const Ran checked = run_program("tools/troupe/troupe", {"trace", "check", path + part});
    EXPECT_EQ(checked.status, 0) << part << ": " << checked.out << checked.err;
    const Ran replayed = run_program("tools/troupe/troupe", {"trace", "replay", path + part});
    EXPECT_EQ(replayed.status, 0) << part << ": " << replayed.out << replayed.err;
  }
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

}  // namespace
}  // namespace troupe::tools
