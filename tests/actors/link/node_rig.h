// Nodes with scripted models, and a runtime that uses them, in one process: over real connections on the loopback.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/link/nodes.h"
#include "actors/node.h"
#include "tests/actors/link/authority.h"
#include "tests/actors/rig.h"

namespace troupe::test {

namespace link = actors::link;

using namespace std::chrono_literals;

class Nodes {
 public:
  explicit Nodes(device::ScriptedOptions script = {}) : script_(std::move(script)) {}

  // Starts node `i`, at the port that it had before if it had one.
  void start(std::size_t i, std::size_t replicas = 1) {
    if (nodes_.size() <= i) nodes_.resize(i + 1), ports_.resize(i + 1), models_.resize(i + 1);
    NodeOptions options;
    options.port = ports_[i];
    options.credentials = authority_.issue("node" + std::to_string(i));
    options.runtime.trace.flight_bytes = 0;
    std::vector<ReplicaSource> sources;
    for (std::size_t r = 0; r < replicas; ++r) {
      ReplicaSource source;
      source.name = "host:" + std::to_string(r);
      source.open = [this, i, r]() -> Result<OpenedReplica> {
        OpenedReplica opened;
        opened.driver = device::make_host_driver();
        TROUPE_TRY(auto model, device::ScriptedModel::load(*opened.driver, script_));
        if (r == 0) models_[i] = model.get();  // replicas are opened side by side
        opened.model = std::move(model);
        return opened;
      };
      sources.push_back(std::move(source));
    }
    auto node = Node::start(options, std::move(sources));
    ASSERT_TRUE(node) << node.error().what;
    nodes_[i] = std::move(node.value());
    ports_[i] = nodes_[i]->port();
  }
  void stop(std::size_t i) {
    const auto stopped = nodes_[i]->stop();
    EXPECT_TRUE(stopped) << stopped.error().what;
    nodes_[i].reset();
  }
  // A runtime over them. `through`: the port of something in between, for node 0.
  std::unique_ptr<Runtime> runtime(link::LinkOptions links = quick(), RuntimeOptions options = {}, std::uint16_t through = 0) {
    std::vector<std::string> names;
    for (const std::uint16_t port : ports_) names.push_back("127.0.0.1:" + std::to_string(port));
    if (through != 0) names[0] = "127.0.0.1:" + std::to_string(through);
    auto sources = link::node_sources(names, authority_.issue("runtime"), links);
    EXPECT_TRUE(sources) << sources.error().what;
    if (!sources) return nullptr;
    options.trace.flight_bytes = 0;
    options.supervision.backoff = 50'000'000;
    options.supervision.max_backoff = 200'000'000;
    auto runtime = Runtime::start(options, std::move(sources.value()));
    EXPECT_TRUE(runtime) << runtime.error().what;
    return runtime ? std::move(runtime.value()) : nullptr;
  }
  static link::LinkOptions quick() {
    link::LinkOptions links;
    links.heartbeat = 100ms;
    links.silence = 5s;
    return links;
  }
  Node& node(std::size_t i) { return *nodes_[i]; }
  device::ScriptedModel* model(std::size_t i) { return models_[i]; }  // of the first replica of node i, as last opened
  std::uint16_t port(std::size_t i) const { return ports_[i]; }
  const link::Authority& authority() const { return authority_; }

 private:
  device::ScriptedOptions script_;
  link::Authority authority_{"nodes"};
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::uint16_t> ports_;
  std::vector<device::ScriptedModel*> models_;
};

template <class F>
bool eventually(F f) {
  for (int i = 0; i < 6000; ++i) {
    if (f()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

}  // namespace troupe::test
