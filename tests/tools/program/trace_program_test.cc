// `troupe trace` and what records for it, from outside.
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
