// `troupe node` under attack (attack.h): it lives, its memory is bounded, and the runtime that has its replica notices nothing.
// TROUPE_ATTACK_CONNECTIONS: how many; `tools/dev node-attack` makes a hundred thousand.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "actors/link/nodes.h"
#include "actors/runtime.h"
#include "tests/actors/link/authority.h"
#include "tests/actors/rig.h"
#include "tests/tools/node/attack.h"
#include "tests/tools/node/process.h"
#include "tests/tools/program/spawn.h"

namespace troupe::tools {
namespace {

using namespace std::chrono_literals;
namespace link = actors::link;

const std::string kModel = "tests/golden/tiny-llama/tiny-llama.F32.gguf";
const std::string kProgram = "tools/troupe/troupe";

std::vector<std::string> node_args(const link::Credentials& c) {
  return {"--model", kModel, "--max-batch", "4", "node", "--listen", "127.0.0.1:0", "--cert", c.certificate, "--key", c.key, "--ca", c.ca};
}

TEST(NodeProgram, DoesNotStartWithoutCertificates) {
  const Ran bare = run_program(kProgram, {"--model", kModel, "node", "--listen", "127.0.0.1:0"});
  EXPECT_EQ(bare.status, 2) << bare.err;
  EXPECT_NE(bare.err.find("--cert"), std::string::npos) << bare.err;
  const Ran client = run_program(kProgram, {"--model", kModel, "run", "--nodes", "127.0.0.1:1", "-"});
  EXPECT_EQ(client.status, 3) << client.err;
  EXPECT_NE(client.err.find("--cert"), std::string::npos) << client.err;
}

TEST(NodeProgram, ServesARunAndStops) {
  link::Authority authority("run");
  const link::Credentials c = authority.issue("node");
  Process node(kProgram, node_args(c));
  const std::string at = node.line();
  ASSERT_EQ(at.substr(0, 23), "listening at 127.0.0.1:") << at;
  const std::string requests = R"({"id": 1, "prompt_ids": [5, 17, 3], "max_tokens": 30}
{"id": 2, "prompt_ids": [6, 17, 5], "max_tokens": 30, "temperature": 0.9, "seed": 7}
)";
  const std::vector<std::string> common{"--model", kModel, "--max-batch", "1"};
  std::vector<std::string> local = common, remote = common;
  local.insert(local.end(), {"run", "-"});
  remote.insert(remote.end(), {"run", "--nodes", at.substr(13), "--cert", c.certificate, "--key", c.key, "--ca", c.ca, "-"});
  const Ran here = run_program(kProgram, local, requests);
  const Ran there = run_program(kProgram, remote, requests);
  EXPECT_EQ(here.status, 0) << here.err;
  EXPECT_EQ(there.status, 0) << there.err;
  const auto ids = [](const std::string& out) {  // the figures differ
    std::string found;
    for (std::size_t at = 0; (at = out.find("\"token_ids\"", at)) != std::string::npos; ++at)
      found += out.substr(at, out.find(']', at) - at);
    return found;
  };
  EXPECT_NE(ids(here.out), "");
  EXPECT_EQ(ids(here.out), ids(there.out));
  EXPECT_EQ(node.end(SIGTERM), 0);
}

TEST(NodeProgram, WithstandsAttacks) {
  std::signal(SIGPIPE, SIG_IGN);  // the node hangs up on the attacker
  link::Authority ours("attacked"), theirs("strangers");
  Process node(kProgram, node_args(ours.issue("node")));
  const std::string at = node.line();
  const auto address = link::parse_host_port(at.substr(at.find(' ', 10) + 1));
  ASSERT_TRUE(address) << at;

  // Its rightful runtime, which has requests all the while.
  auto sources = link::node_sources({"127.0.0.1:" + std::to_string(address.value().port)}, ours.issue("runtime"), {});
  ASSERT_TRUE(sources) << sources.error().what;
  auto runtime = Runtime::start({}, std::move(sources.value()));
  ASSERT_TRUE(runtime) << runtime.error().what;
  test::Clients clients;
  std::uint64_t client = 0;
  const auto ask = [&] {
    Request r;
    r.client = ++client;
    r.prompt = {5, 17, 3, 9};
    r.stop.max_tokens = 40;
    r.stop.ignore_eos = true;
    const auto id = runtime.value()->submit(r, clients.callback(r.client));
    EXPECT_TRUE(id) << id.error().what;
    clients.wait_ended(client);
    return clients.record(client);
  };
  const std::vector<Token> wanted = ask().tokens;
  ASSERT_EQ(wanted.size(), 40u);

  const char* many = std::getenv("TROUPE_ATTACK_CONNECTIONS");
  link::AttackPlan plan;
  plan.port = address.value().port;
  plan.good = ours.issue("traitor");
  plan.stranger = theirs.issue("stranger");
  const std::uint64_t total = many != nullptr ? std::strtoull(many, nullptr, 10) : 2000;
  const std::uint64_t slice = std::max<std::uint64_t>(1, total / 20);
  std::map<std::string, std::uint64_t> made;
  std::uint64_t frames = 0, failed = 0, first = 0, peak = 0;
  std::atomic<bool> over{false};
  std::thread attacker([&] {
    for (std::uint64_t done = 0; done < total; done += slice) {
      plan.connections = slice;
      ++plan.seed;
      const link::AttackReport report = link::attack(plan);
      for (const auto& [kind, n] : report.made) made[kind] += n;
      frames += report.frames;
      failed += report.failed;
      const std::uint64_t now = link::resident_mib(node.pid());
      if (first == 0) first = now;  // with the first slice's buffers
      peak = std::max(peak, now);
    }
    over = true;
  });
  std::uint64_t served = 0;
  while (!over) {
    const test::Record got = ask();
    EXPECT_EQ(got.wrong, "");
    EXPECT_EQ(got.tokens, wanted);
    ++served;
  }
  attacker.join();
  EXPECT_TRUE(node.runs()) << "the node died";
  EXPECT_EQ(ask().tokens, wanted);
  EXPECT_EQ(runtime.value()->metrics().replicas[0].replica.incarnation, 1u) << "the link of the rightful runtime was lost";
  EXPECT_GT(served, 0u);
  EXPECT_EQ(made.size(), 8u);
  EXPECT_LT(failed, total / 10);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(peak, first + 64) << "MiB";
#endif
  std::cout << total << " connections, " << frames << " frames with a good certificate; " << served
            << " requests served meanwhile; resident " << first << " MiB after a twentieth, " << peak << " at most\n";
  for (const auto& [kind, n] : made) std::cout << "  " << kind << ": " << n << "\n";
  EXPECT_TRUE(runtime.value()->stop());
  EXPECT_EQ(node.end(SIGTERM), 0);
}

}  // namespace
}  // namespace troupe::tools
