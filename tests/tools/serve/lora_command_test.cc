// `troupe lora` against a server: what it prints, and how it ends.
#include "tests/tools/program/spawn.h"
#include "tests/tools/serve/rig.h"

namespace troupe::serve {
namespace {

class LoraCommand : public ::testing::Test {
 protected:
  tools::Ran lora(std::vector<std::string> args) const {
    args.insert(args.begin(), "lora");
    args.insert(args.end(), {"--server", "http://127.0.0.1:" + std::to_string(rig.server->port())});
    return tools::run_program("tools/troupe/troupe", std::move(args));
  }
  ServeRig rig = tiny_server();
};

TEST_F(LoraCommand, LoadsListsAndUnloads) {
  EXPECT_EQ(lora({"list"}).out, "");
  const tools::Ran loaded = lora({"load", "ad", "tests/golden/tiny-llama/adapters/all-r4"});
  EXPECT_EQ(loaded.status, 0) << loaded.err;
  EXPECT_NE(loaded.out.find(R"("lora_name":"ad")"), std::string::npos) << loaded.out;
  EXPECT_EQ(lora({"list"}).out, "ad\n");
  EXPECT_EQ(lora({"unload", "ad"}).status, 0);
  EXPECT_EQ(lora({"list"}).out, "");
}

TEST_F(LoraCommand, SaysWhatTheServerRefuses) {
  const tools::Ran ran = lora({"unload", "nobody"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.err.find("nobody"), std::string::npos) << ran.err;
  EXPECT_EQ(lora({"load", "ad", "/nonexistent"}).status, 1);
}

TEST_F(LoraCommand, AWrongCommandLineIsExitStatus2) {
  EXPECT_EQ(lora({}).status, 2);
  EXPECT_EQ(lora({"load", "ad"}).status, 2);
  EXPECT_EQ(tools::run_program("tools/troupe/troupe", {"lora", "list", "--server", "nowhere"}).status, 2);
  EXPECT_EQ(tools::run_program("tools/troupe/troupe", {"lora", "list", "--server", "https://127.0.0.1:1"}).status, 2);
}

TEST_F(LoraCommand, WithoutAServerItSaysSo) {
  const std::string gone = "http://127.0.0.1:" + std::to_string(rig.server->port());
  rig.server.reset();
  const tools::Ran ran = tools::run_program("tools/troupe/troupe", {"lora", "list", "--server", gone});
  EXPECT_EQ(ran.status, 3);
  EXPECT_NE(ran.err.find("is `troupe serve` running there?"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace troupe::serve
