// Several replicas behind one server: what /replicas, /health and /metrics say of them, and the commands that look after them.
#include <atomic>
#include <sstream>
#include <thread>

#include "tests/actors/replicas_rig.h"
#include "tests/tools/program/spawn.h"
#include "tests/tools/serve/rig.h"

namespace troupe::serve {
namespace {

namespace json = boost::json;

class Replicas : public ::testing::Test {
 protected:
  // `prepare`: what goes wrong, see test::Lives.
  void serve(std::uint32_t n, test::Lives::Prepare prepare = {}, RuntimeOptions runtime = test::impatient()) {
    device::ScriptedOptions script;
    script.step_ns = 500'000;
    script.spin_ns = 0;
    auto text = device::load_text(kTinyModel);
    ASSERT_TRUE(text) << text.error().what;
    std::vector<ReplicaSource> sources;
    for (std::uint32_t i = 0; i < n; ++i) sources.push_back(lives_.source(i, script, prepare));
    auto started = Runtime::start(runtime, std::move(sources));
    ASSERT_TRUE(started) << started.error().what;
    rig_.runtime = std::move(started.value());
    ServeOptions options;
    options.port = 0;
    options.model_name = "m";
    auto server = Server::start(*rig_.runtime, std::move(text.value()), options);
    ASSERT_TRUE(server) << server.error().what;
    rig_.server = std::move(server.value());
  }
  json::value replicas() const { return rig_.client().get("/replicas").json(); }
  std::string state(std::size_t i) const { return std::string(replicas().at("replicas").at(i).at("state").as_string()); }
  tools::Ran troupe(std::vector<std::string> args) const {
    args.insert(args.end(), {"--server", "http://127.0.0.1:" + std::to_string(rig_.server->port())});
    return tools::run_program("tools/troupe/troupe", std::move(args));
  }

  test::Lives lives_;
  ServeRig rig_;
};

TEST_F(Replicas, AreListed) {
  serve(2);
  Client c = rig_.client();
  ASSERT_EQ(c.post("/v1/completions", greedy("5, 17, 9", 20)).status, 200);
  ASSERT_EQ(c.post("/v1/completions", greedy("6, 18, 9", 20)).status, 200);
  const json::value v = replicas();
  ASSERT_EQ(v.at("replicas").as_array().size(), 2u);
  EXPECT_EQ(v.at("model").as_string(), "m");
  EXPECT_EQ(v.at("tokens").as_int64(), 40);
  for (std::int64_t i = 0; i < 2; ++i) {
    const json::value& r = v.at("replicas").at(static_cast<std::size_t>(i));
    EXPECT_EQ(r.at("index").as_int64(), i);
    EXPECT_EQ(r.at("incarnation").as_int64(), 1);
    EXPECT_EQ(r.at("name").as_string(), "host:" + std::to_string(i));
    EXPECT_EQ(r.at("state").as_string(), "up");
    EXPECT_EQ(r.at("live").as_int64(), 0);
  }
  const json::value health = c.get("/health").json();
  EXPECT_EQ(health.at("replicas").as_int64(), 2);
  EXPECT_EQ(health.at("replicas_up").as_int64(), 2);
  EXPECT_EQ(rig_.metric("troupe_replica_state{model_name=\"m\",replica=\"host:1\",state=\"up\"}"), 1);
  EXPECT_EQ(rig_.metric("troupe_replica_state{model_name=\"m\",replica=\"host:1\",state=\"failed\"}"), 0);
  EXPECT_EQ(rig_.metric("troupe_replica_starts{model_name=\"m\",replica=\"host:0\"}"), 1);
  EXPECT_EQ(rig_.metric("troupe_requests_unplaced"), 0);
}

TEST_F(Replicas, AreDrainedAndTakenBackByCommand) {
  serve(2);
  const tools::Ran drained = troupe({"drain", "host:1"});
  EXPECT_EQ(drained.status, 0) << drained.err;
  EXPECT_EQ(drained.out, "host:1 drained\n");
  EXPECT_EQ(state(0), "up");
  EXPECT_EQ(state(1), "drained");
  EXPECT_EQ(rig_.client().get("/health").status, 200);
  // With the last one goes the service.
  EXPECT_EQ(troupe({"drain", "0"}).status, 0);
  const Response sick = rig_.client().get("/health");
  EXPECT_EQ(sick.status, 503);
  EXPECT_NE(sick.body.find("host:0 is drained; host:1 is drained"), std::string::npos) << sick.body;
  const tools::Ran back = troupe({"undrain", "host:1"});
  EXPECT_EQ(back.status, 0) << back.err;
  EXPECT_EQ(state(1), "up");
  EXPECT_EQ(rig_.client().get("/health").status, 200);
  EXPECT_EQ(rig_.client().post("/v1/completions", greedy("5, 17, 9", 5)).status, 200);
  const tools::Ran nobody = troupe({"drain", "cuda:9"});
  EXPECT_EQ(nobody.status, 1);
  EXPECT_NE(nobody.err.find("no such replica"), std::string::npos) << nobody.err;
  EXPECT_EQ(troupe({"undrain", "17"}).status, 1);
}

TEST_F(Replicas, StatusAndTopShowThem) {
  serve(2);
  const tools::Ran text = troupe({"status"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("\nhost:0   up "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\nhost:1   up "), std::string::npos) << text.out;
  const tools::Ran as_json = troupe({"status", "--json"});
  EXPECT_EQ(as_json.status, 0) << as_json.err;
  EXPECT_EQ(json::parse(as_json.out).at("replicas").as_array().size(), 2u);
  // Not a terminal: lines, and nothing that moves a cursor.
  const tools::Ran top = troupe({"top", "--count", "2", "--interval", "0.05"});
  EXPECT_EQ(top.status, 0) << top.err;
  EXPECT_EQ(top.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(std::count(top.out.begin(), top.out.end(), '\n'), 8);
  EXPECT_NE(top.out.find(" tokens/s\n"), std::string::npos) << top.out;
}

TEST_F(Replicas, ALostOneIsNotTheServers) {
  std::atomic<bool> gone{true};
  RuntimeOptions runtime = test::impatient();
  runtime.supervision.max_restarts = 2;
  serve(
      2,
      [&](std::uint32_t index, std::uint32_t life, device::Driver& driver, device::ScriptedOptions&) {
        if (index == 0 && life == 1) driver.inject({device::DriverCall::enqueue, 40, ErrorCode::device_lost, true});
        if (index == 0 && life > 1 && gone) return Result<void>(Error{ErrorCode::io_failed, "no such device"});
        return Result<void>(success());
      },
      runtime);
  std::vector<std::string> bodies(6);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    threads.emplace_back([&, i] {
      const Response r = rig_.client().post("/v1/completions", greedy("5, 17, " + std::to_string(i), 60));
      EXPECT_EQ(r.status, 200);
      bodies[i] = json::serialize(r.json().at("choices"));
    });
  }
  for (auto& thread : threads) thread.join();
  eventually([&] { return state(0) == "failed"; });
  EXPECT_EQ(replicas().at("replicas").at(0).at("error").as_string(), "no such device");
  EXPECT_EQ(rig_.client().get("/health").status, 200);
  EXPECT_NE(troupe({"status"}).out.find("no such device"), std::string::npos);
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    const Response again = rig_.client().post("/v1/completions", greedy("5, 17, " + std::to_string(i), 60));
    EXPECT_EQ(json::serialize(again.json().at("choices")), bodies[i]) << i;
  }
  gone = false;
  EXPECT_EQ(troupe({"undrain", "host:0"}).status, 0);
  eventually([&] { return state(0) == "up"; });
}

TEST_F(Replicas, WithNoneLeftTheServerSaysSo) {
  RuntimeOptions runtime = test::impatient();
  runtime.supervision.max_restarts = 1;
  serve(
      1,
      [](std::uint32_t, std::uint32_t life, device::Driver& driver, device::ScriptedOptions&) {
        if (life > 1) return Result<void>(Error{ErrorCode::io_failed, "no such device"});
        driver.inject({device::DriverCall::enqueue, 10, ErrorCode::device_lost, true});
        return Result<void>(success());
      },
      runtime);
  const Response cut = rig_.client().post("/v1/completions", greedy("5, 17, 9", 60));
  EXPECT_EQ(cut.status, 503) << cut.body;
  eventually([&] { return state(0) == "failed"; });
  const Response refused = rig_.client().post("/v1/completions", greedy("5, 17, 9", 5));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.error(), "unavailable");
  const Response sick = rig_.client().get("/health");
  EXPECT_EQ(sick.status, 503);
  EXPECT_EQ(sick.error(), "unavailable");
}

TEST_F(Replicas, WrongBodiesAreRefused) {
  serve(1);
  for (const char* body : {"{}", "[]", R"({"replica": ""})", R"({"replica": -1})", R"({"replica": "host:0", "x": 1})"}) {
    EXPECT_EQ(rig_.client().post("/replicas/drain", body).status, 400) << body;
  }
  EXPECT_EQ(rig_.client().post("/replicas/drain", R"({"replica": "host:7"})").status, 404);
  EXPECT_EQ(rig_.client().get("/replicas/drain").status, 405);
  // One without a source cannot come back, so it is not drained.
  ServeRig alone = scripted_server({});
  const Response refused = alone.client().post("/replicas/drain", R"({"replica": 0})");
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_EQ(alone.client().get("/replicas").json().at("replicas").as_array().size(), 1u);
}

}  // namespace
}  // namespace troupe::serve
