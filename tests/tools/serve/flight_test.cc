// /debug/trace: what a client fetches is a recording of what just happened.
#include <cstdlib>
#include <filesystem>
#include <future>
#include <set>

#include "actors/trace/check.h"
#include "actors/trace/reader.h"
#include "tests/tools/serve/rig.h"
#include "tools/serve/flight.h"

namespace troupe::serve {
namespace {

namespace trace = actors::trace;

trace::Recording recording_of(const std::string& bytes) {
  auto read = trace::parse_recording(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  EXPECT_TRUE(read) << read.error().what;
  return read ? std::move(read.value()) : trace::Recording{};
}

// How many requests with that prompt were submitted.
std::size_t submitted(const trace::Recording& recording, const std::vector<Token>& prompt) {
  std::set<std::uint64_t> found;
  for (const trace::Event& e : recording.events) {
    const auto* admit = e.head.kind == trace::RecordKind::sent ? std::get_if<Admit>(&e.message) : nullptr;
    if (admit != nullptr && admit->request && admit->request->prompt == prompt) found.insert(admit->id.client);
  }
  return found.size();
}

// Its own folder for temporary files, so that what is left in it shows.
class Flight : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    ::setenv("TMPDIR", folder_.c_str(), 1);
  }
  bool nothing_is_left() const { return std::filesystem::is_empty(folder_); }
  const std::string folder_ = ::testing::TempDir() + "/flight_test";
};

TEST_F(Flight, ShowsTheRequestThatWasJustAnswered) {
  ServeRig rig = tiny_server();
  Client c = rig.client();
  ASSERT_EQ(c.post("/v1/completions", greedy("5, 17, 9", 20)).status, 200);
  const Response r = c.get("/debug/trace");
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.content_type, "application/octet-stream");
  const trace::Recording recording = recording_of(r.body);
  EXPECT_TRUE(recording.header.from_start);
  EXPECT_EQ(recording.damage, "");
  EXPECT_EQ(recording.cut_bytes, 0u);
  EXPECT_EQ(submitted(recording, {5, 17, 9}), 1u);
  EXPECT_EQ(submitted(recording, {5, 17}), 0u);
  const auto checked = trace::check(recording);
  ASSERT_TRUE(checked);
  EXPECT_FALSE(checked.value().finding) << checked.value().finding->what;
  // And again, on the same connection; a HEAD in between has no body.
  ASSERT_EQ(c.post("/v1/completions", greedy("5, 17", 3)).status, 200);
  c.send("HEAD /debug/trace HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(c.receive_until("\r\n\r\n"));
  EXPECT_TRUE(c.text().ends_with("\r\n\r\n") && c.text().starts_with("HTTP/1.1 200")) << c.text();
  c.forget();
  EXPECT_EQ(submitted(recording_of(c.get("/debug/trace").body), {5, 17}), 1u);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(Flight, IsThereWhenTheDeviceHangs) {
  device::ScriptedOptions script;
  script.context = 4096;
  script.kv_blocks = 1024;
  script.faults.push_back({device::ScriptedFault::Kind::hang_step, 10});
  ServeRig rig = scripted_server(script);
  Client c = rig.client();
  c.send(Client::post_text("/v1/completions", greedy("1, 2, 3", 100, R"(, "stream": true)")));
  ASSERT_TRUE(c.receive_until("data: ", 2));
  EXPECT_EQ(submitted(recording_of(rig.client().get("/debug/trace").body), {1, 2, 3}), 1u);
  rig.model->release();
  EXPECT_EQ(c.response().status, 200);
}

TEST_F(Flight, OneIsFetchedAtATime) {
  ServeRig rig = scripted_server({});
  FlightDumper dumper(*rig.runtime);
  const auto dump = [&] {
    const auto answer = std::make_shared<std::promise<ApiResult<std::shared_ptr<Recording>>>>();
    dumper.dump("", [answer](ApiResult<std::shared_ptr<Recording>> r) { answer->set_value(std::move(r)); });
    return answer->get_future().get();
  };
  {
    auto first = dump();
    ASSERT_TRUE(first) << first.error().message;
    EXPECT_EQ(dump().error().status, 429);
    std::string bytes;
    while (!first.value()->at_end()) bytes += first.value()->next(100).value();
    EXPECT_EQ(bytes.size(), first.value()->size());
    EXPECT_TRUE(recording_of(bytes).header.from_start);
    EXPECT_EQ(dump().error().status, 429) << "until it is let go";
  }
  EXPECT_TRUE(dump());
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(Flight, WhatCannotBeWrittenIsAnError) {
  RuntimeOptions off;
  off.trace.flight_bytes = 0;
  EXPECT_EQ(scripted_server({}, {}, off).client().get("/debug/trace").error(), "recorder_off");
  ServeRig rig = scripted_server({});
  std::filesystem::remove_all(folder_);
  const Response r = rig.client().get("/debug/trace");
  EXPECT_EQ(r.status, 500);
  EXPECT_EQ(r.error(), "io_failed");
}

}  // namespace
}  // namespace troupe::serve
