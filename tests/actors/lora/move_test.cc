// What the controller does where there are other replicas: it says what it binds requests to, takes over those that had output
// elsewhere with the very adapter that they had, and gives and takes adapters out of memory.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "actors/lora/core.h"

namespace troupe::actors {
namespace {

using Kind = LoraCommand::Kind;

class LoraMove : public testing::Test {
 protected:
  LoraMove() {
    ModelInfo model;
    model.max_loras = 2;
    LoraConfig config;
    config.replica = {1, 3};
    config.movable = true;
    core.emplace(config, model);
  }
  template <class M>
  void send(const M& m) {
    out.clear();
    core->on(m, ++now, out);
    EXPECT_EQ(core->check(), "");
  }
  template <class M>
  const M* sent() const {
    const M* found = nullptr;
    for (const auto& item : out.items())
      if (const auto* m = std::get_if<M>(&item)) found = m;
    return found;
  }
  void command(std::uint64_t id, Kind kind, const std::string& name, Shared<AdapterImage> image = {}) {
    LoraSubmit m;
    m.id = id;
    m.command.kind = kind;
    m.command.name = name;
    m.command.path = kind == Kind::promote_disk ? "dir" : "";
    m.image = std::move(image);
    send(m);
  }
  void load(std::uint64_t id, const std::string& name) {
    command(id, Kind::promote_disk, name);
    send(AdapterLoaded{{}, id, {}});
    send(LoraReply{});
    EXPECT_EQ(sent<LoraAnswer>()->error.code, ErrorCode::none);
    EXPECT_EQ(sent<LoraAnswer>()->replica, (ReplicaRef{1, 3}));
  }
  const Admit* admit(std::uint64_t generation, const std::string& adapter, std::vector<Token> output = {}, std::uint64_t loaded_by = 0) {
    Request q;
    q.client = generation;
    q.adapter = adapter;
    Admit m{{}, {generation, generation}, Shared<Request>::of(std::move(q)), 0};
    m.attempt = output.empty() ? 0 : 1;
    m.output = std::move(output);
    m.adapter_command = loaded_by;
    send(m);
    return sent<Admit>();
  }

  std::optional<LoraCore> core;
  LoraOutbox out;
  TimeNs now = 0;
};

TEST_F(LoraMove, SaysWhatARequestIsBoundTo) {
  load(7, "a");
  ASSERT_NE(admit(1, "a"), nullptr);
  EXPECT_EQ(sent<LoraBound>()->command, 7u);
  EXPECT_EQ(sent<LoraBound>()->request, (Placed{{1, 1}, 0}));
  EXPECT_EQ(sent<LoraBound>()->replica, (ReplicaRef{1, 3}));
  (void)admit(2, "");
  EXPECT_EQ(sent<LoraBound>()->command, 0u);
}

TEST_F(LoraMove, GoesOnWithWhatTheSameCommandLoaded) {
  load(7, "a");
  const AdapterRef old = admit(1, "a")->adapter;
  load(9, "a");  // the name is another adapter's now, and the old one stays for its user
  EXPECT_NE(admit(2, "a")->adapter, old);
  EXPECT_EQ(admit(3, "a", {5}, 7)->adapter, old);
  EXPECT_EQ(admit(4, "a", {5}, 8)->error.code, ErrorCode::adapter_gone);
  // Bound to the base model, whatever requests without a name get now.
  command(10, Kind::rotate, "a");
  EXPECT_EQ(admit(5, "", {5}, 0)->adapter, AdapterRef{});
  EXPECT_NE(admit(6, "")->adapter, AdapterRef{});
}

TEST_F(LoraMove, WaitsForACommandThatTakesItsAdapterAway) {
  load(7, "a");
  ASSERT_NE(admit(1, "a"), nullptr);
  command(8, Kind::unload, "a");
  EXPECT_EQ(admit(2, "a", {5}, 7), nullptr);
  send(Ended{{}, {{{1, 1}, 0}}, {1, 3}});
  ASSERT_NE(sent<Lora>(), nullptr);
  send(LoraReply{});
  ASSERT_NE(sent<Admit>(), nullptr);
  EXPECT_EQ(sent<Admit>()->error.code, ErrorCode::adapter_gone);
}

TEST_F(LoraMove, AnAdapterThatIsReadStays) {
  load(7, "a");
  send(FetchAdapter{{}, 20, "a", {1, 3}});
  ASSERT_NE(sent<ReadAdapter>(), nullptr);
  EXPECT_EQ(sent<ReadAdapter>()->slot, 1u);
  command(8, Kind::unload, "a");
  EXPECT_EQ(sent<Lora>(), nullptr);  // not while it is read
  const auto image = Shared<AdapterImage>::of(AdapterImage{{1, 2, 3}});
  send(AdapterRead{{}, 20, image, {}});
  EXPECT_EQ(sent<AdapterFetched>()->image.get(), image.get());
  EXPECT_EQ(sent<AdapterFetched>()->replica, (ReplicaRef{1, 3}));
  EXPECT_NE(sent<Lora>(), nullptr);
  send(FetchAdapter{{}, 21, "b", {1, 3}});
  EXPECT_EQ(sent<AdapterFetched>()->error.code, ErrorCode::unknown_adapter);
}

TEST_F(LoraMove, PromoteLoadsTheImageThatCameWithIt) {
  const auto image = Shared<AdapterImage>::of(AdapterImage{{1, 2, 3}});
  command(7, Kind::promote, "a", image);
  ASSERT_NE(sent<LoadAdapter>(), nullptr);
  EXPECT_EQ(sent<LoadAdapter>()->image.get(), image.get());
  send(AdapterLoaded{{}, 7, {}});
  send(LoraReply{});
  EXPECT_EQ(sent<LoraAnswer>()->error.code, ErrorCode::none);
  EXPECT_NE(admit(1, "a")->adapter, AdapterRef{});
}

TEST_F(LoraMove, ADeadlineCountsFromTheFirstSubmission) {
  load(7, "a");
  ASSERT_NE(admit(1, "a"), nullptr);
  command(8, Kind::unload, "a");
  Request q;
  q.client = 2;
  q.adapter = "a";
  q.deadline = TimeNs{100};
  Admit m{{}, {2, 2}, Shared<Request>::of(std::move(q)), 0};
  m.waited = 60;
  send(m);
  EXPECT_EQ(sent<Admit>(), nullptr);
  now += 45;
  send(Tick{});
  ASSERT_NE(sent<Admit>(), nullptr);
  EXPECT_TRUE(sent<Admit>()->parked);
  EXPECT_GE(sent<Admit>()->waited, 100);
}

}  // namespace
}  // namespace troupe::actors
