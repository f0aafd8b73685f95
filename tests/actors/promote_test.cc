// Promote through a whole runtime: an adapter whose files are gone is handed from one replica's memory to another's, next door and
// over a link, and decodes there as the reference says and token by token as where it came from.
#include <algorithm>
#include <chrono>
#include <filesystem>

#include "actors/link/nodes.h"
#include "actors/node.h"
#include "device/models/load.h"
#include "tests/actors/link/authority.h"
#include "tests/actors/rig.h"
#include "tests/golden/golden.h"

namespace troupe::test {
namespace {

using Kind = LoraCommand::Kind;
namespace fs = std::filesystem;

const std::string kFolder = "tests/golden/tiny-llama/";

ReplicaSource source(std::uint32_t index) {
  ReplicaSource out;
  out.name = "host:" + std::to_string(index);
  out.open = []() -> Result<OpenedReplica> {
    device::LoadOptions load;
    load.exact = true;
    load.threads = 1;
    load.max_loras = 2;
    load.max_lora_rank = 16;
    TROUPE_TRY(auto loaded, device::load_model(kFolder + "tiny-llama.F32.gguf", load));
    OpenedReplica opened;
    opened.driver = std::move(loaded.driver);
    opened.model = std::move(loaded.model);
    return opened;
  };
  return out;
}

// A copy of the adapter that can be deleted.
class Files {
 public:
  explicit Files(const std::string& adapter) : path_(fs::path(testing::TempDir()) / ("promote-" + adapter)) {
    fs::remove_all(path_);
    fs::copy(kFolder + "adapters/" + adapter, path_);
    // What is copied may be as unwritable as a test's data.
    fs::permissions(path_, fs::perms::owner_all, fs::perm_options::add);
  }
  ~Files() { remove(); }
  void remove() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

std::vector<std::vector<Token>> answers(Runtime& runtime, Clients& clients, std::uint64_t& client, const std::string& adapter,
                                        const std::vector<golden::Case>& cases) {
  std::vector<std::uint64_t> ids;
  for (const golden::Case& c : cases) {
    Request q;
    q.client = ++client;
    q.prompt = c.prompt;
    q.adapter = adapter;
    q.stop.max_tokens = static_cast<std::uint32_t>(c.greedy.size());
    q.stop.ignore_eos = true;
    EXPECT_TRUE(runtime.submit(std::move(q), clients.callback(client)));
    ids.push_back(client);
  }
  clients.wait_ended(client);
  std::vector<std::vector<Token>> out;
  for (const std::uint64_t id : ids) {
    EXPECT_EQ(clients.record(id).wrong, "");
    EXPECT_EQ(clients.record(id).finish->reason, FinishReason::length) << clients.record(id).finish->error.what;
    out.push_back(clients.record(id).tokens);
  }
  return out;
}

void takes_it_from_the_other(Runtime& runtime) {
  Files files("qv-r8");
  const auto cases = golden::read_cases(kFolder + "adapters/qv-r8/golden.json");
  const auto replicas = runtime.metrics().replicas;
  ASSERT_EQ(replicas.size(), 2u);
  LoraCommand load;
  load.kind = Kind::promote_disk;
  load.name = "pirate";
  load.path = files.path();
  load.replica = replicas[0].name;
  const auto loaded = runtime.lora(load);
  ASSERT_TRUE(loaded) << loaded.error().what;
  files.remove();

  Clients clients;
  std::uint64_t client = 0;
  const auto first = answers(runtime, clients, client, "pirate", cases);  // it is on replica 0 only
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const golden::Case& c = cases[k];
    std::size_t sure = 0;  // up to the first step that small differences may decide
    while (sure < c.greedy.size() && c.margin[sure] >= 1e-2 * c.logit_std) ++sure;
    ASSERT_GE(first[k].size(), sure);
    EXPECT_TRUE(std::equal(c.greedy.begin(), c.greedy.begin() + static_cast<std::ptrdiff_t>(sure), first[k].begin())) << k;
  }
  // From its files nobody has it any more.
  load.replica = replicas[1].name;
  EXPECT_FALSE(runtime.lora(load));
  LoraCommand promote;
  promote.kind = Kind::promote;
  promote.name = "pirate";
  promote.peer = replicas[0].name;
  promote.adapter = "nobody";
  EXPECT_EQ(runtime.lora(promote).error().code, ErrorCode::unknown_adapter);
  promote.adapter.clear();
  const auto promoted = runtime.lora(promote);
  ASSERT_TRUE(promoted) << promoted.error().what;
  ASSERT_EQ(promoted.value().replicas.size(), 1u);
  EXPECT_EQ(promoted.value().replicas[0].name, replicas[1].name);
  EXPECT_NE(promoted.value().replicas[0].adapter.slot, 0u);

  ASSERT_TRUE(runtime.drain_replica(0, std::chrono::minutes(1)));
  EXPECT_EQ(answers(runtime, clients, client, "pirate", cases), first);
  // And back, under another name.
  ASSERT_TRUE(runtime.undrain_replica(0));
  promote.name = "corsair";
  promote.adapter = "pirate";
  promote.peer = replicas[1].name;
  ASSERT_TRUE(runtime.lora(promote));
  ASSERT_TRUE(runtime.drain_replica(1, std::chrono::minutes(1)));
  EXPECT_EQ(answers(runtime, clients, client, "corsair", cases), first);
}

TEST(Promote, BetweenReplicasOfOneRuntime) {
  auto started = Runtime::start({}, {source(0), source(1)});
  ASSERT_TRUE(started) << started.error().what;
  takes_it_from_the_other(*started.value());
  EXPECT_TRUE(started.value()->stop());
}

TEST(Promote, BetweenNodes) {
  actors::link::Authority authority("promote");
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::string> names;
  for (int i = 0; i < 2; ++i) {
    NodeOptions options;
    options.credentials = authority.issue("node" + std::to_string(i));
    auto node = Node::start(options, {source(0)});
    ASSERT_TRUE(node) << node.error().what;
    names.push_back("127.0.0.1:" + std::to_string(node.value()->port()));
    nodes.push_back(std::move(node.value()));
  }
  auto sources = actors::link::node_sources(names, authority.issue("runtime"), {});
  ASSERT_TRUE(sources) << sources.error().what;
  auto started = Runtime::start({}, std::move(sources.value()));
  ASSERT_TRUE(started) << started.error().what;
  takes_it_from_the_other(*started.value());
  EXPECT_TRUE(started.value()->stop());
  for (auto& node : nodes) EXPECT_TRUE(node->stop());
}

}  // namespace
}  // namespace troupe::test
