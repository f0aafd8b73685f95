#include "actors/node.h"

#include <fmt/format.h>

#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <utility>

#include "actors/keeper/actor.h"
#include "actors/link/host.h"
#include "actors/replica/place.h"
#include "actors/wire.h"
#include "actors/wire/ask.h"

namespace troupe {

using namespace actors;

namespace {

constexpr std::chrono::seconds kStopGrace{2};        // beyond step_timeout, for a stop that finds the device stuck
constexpr std::chrono::seconds kRestartPatience{2};  // for a replica that is stopped to be started again

// What a connection may come to.
struct Site {
  std::vector<link::HostActor> hosts;  // by replica
  link::Welcome about;                 // what the node says of itself
  std::atomic<std::uint32_t> connections{0};
};

// Hears one connection for the host that its Hello asks for.
class Door final : public link::Handler {
 public:
  explicit Door(std::shared_ptr<Site> site) : site_(std::move(site)), number_(++site_->connections) {}
  void opened(const std::shared_ptr<link::Connection>& connection) override { connection_ = connection; }
  Result<void> on(const link::Frame& frame) override {
    auto message = reader_.read(frame);
    if (!message) {
      if (!host_) refuse(message.error());
      return message.error();
    }
    const std::size_t bytes = link::kFrameHead + frame.payload.size();
    if (!host_) {
      const auto& hello = std::get<link::Hello>(message.value());  // as the reader has it
      if (hello.replica == link::kNoReplica) return answer(bytes);
      if (hello.replica >= site_->hosts.size()) {
        const Error none{ErrorCode::not_found,
                         fmt::format("there is no replica {} here, but {} from 0 on", hello.replica, site_->hosts.size())};
        refuse(none);
        return success();
      }
      host_ = site_->hosts[hello.replica];
      caf::anon_send(host_, link::LinkUp{number_, connection_});
    }
    caf::anon_send(host_, link::LinkSaid{number_, std::move(message.value()), bytes});
    return success();
  }
  void closed(const Error& why) override {
    if (host_) caf::anon_send(host_, link::LinkDown{number_, why});
    host_ = link::HostActor{};
    connection_.reset();
  }

 private:
  // The runtime only asks.
  Result<void> answer(std::size_t bytes) {
    link::FrameWriter writer;
    connection_->send(writer.frame(site_->about));
    connection_->taken(bytes);
    connection_->close({ErrorCode::closed, "it was answered"}, link::Connection::How::flush);
    return success();
  }
  void refuse(const Error& why) {
    link::FrameWriter writer;
    connection_->send(writer.frame(link::Refused{why}));
    connection_->close(why, link::Connection::How::flush);
  }

  std::shared_ptr<Site> site_;
  std::uint32_t number_;
  link::FrameReader reader_{link::Side::runtime};
  std::shared_ptr<link::Connection> connection_;
  link::HostActor host_;
};

}  // namespace

struct Node::Impl {
  NodeOptions options;
  std::unique_ptr<link::Io> io;
  std::vector<std::unique_ptr<ReplicaPlace>> places;
  std::vector<std::shared_ptr<Counts>> counts;  // the hosts'
  std::unique_ptr<ControlConfig> config;
  std::unique_ptr<caf::actor_system> system;
  std::shared_ptr<Site> site = std::make_shared<Site>();
  std::vector<MakerDoor> makers;
  std::uint16_t port = 0;
  std::mutex stopping;
  std::optional<Result<void>> stopped;  // guarded by `stopping`

  Result<void> start(std::vector<ReplicaSource> sources);
  Result<void> start_replica(std::size_t i, const std::vector<std::string>& names);
  Result<void> stop();
};

Result<void> Node::Impl::start(std::vector<ReplicaSource> sources) {
  if (sources.empty()) return Error{ErrorCode::bad_request, "a node needs at least one replica"};
  options.limits.max_frame = &link::most_bytes;
  TROUPE_TRY(io, link::Io::start(options.credentials, options.limits));  // before anything that takes long
  std::vector<std::string> names;
  const std::size_t n = sources.size();
  for (ReplicaSource& source : sources) {
    names.push_back(source.name);
    places.push_back(
        std::make_unique<ReplicaPlace>(options.runtime, std::move(source), static_cast<std::uint32_t>(places.size()), n + 1, true));
  }
  std::vector<std::future<Result<void>>> opening;
  for (const auto& place : places) opening.push_back(std::async(std::launch::async, [raw = place.get()] { return raw->open(1); }));
  Result<void> opened = success();
  for (auto& one : opening) {
    if (Result<void> result = one.get(); !result && opened) opened = std::move(result);
  }
  TROUPE_TRY(std::move(opened));
  config = std::make_unique<ControlConfig>(ControlOptions{options.runtime.spin, options.runtime.pin_control_thread, places.size()});
  system = start_system(*config);
  for (std::size_t i = 0; i < places.size(); ++i) {
    TROUPE_TRY(start_replica(i, names));
  }
  TROUPE_TRY(port, io->listen(options.address, options.port,
                              [site = site]() -> std::shared_ptr<link::Handler> { return std::make_shared<Door>(site); }));
  return success();
}

Result<void> Node::Impl::start_replica(std::size_t i, const std::vector<std::string>& names) {
  ReplicaPlace& place = *places[i];
  Home& home = config->home(i);
  auto own = std::make_shared<Counts>();
  own->home = &home;
  own->place = {kFront, 1};
  counts.push_back(own);
  link::HostConfig host;
  host.node = options.name.empty() ? fmt::format("{}:{}", options.address, options.port) : options.name;
  host.replicas = names;
  host.max_live = options.runtime.max_live;
  host.ref = {static_cast<std::uint32_t>(i), 1};
  host.model = place.replica()->info();
  host.tokens = link::token_hash(host.model.tokens);
  if (i == 0) site->about = link::HostCore::welcome(host);
  const link::HostActor actor = system->spawn<link::HostShell>(own, host);
  site->hosts.push_back(actor);
  const Front front{system.get(), actor, actor, own};
  TROUPE_TRY(place.start(front, home));
  const MakerDoor maker = system->spawn<KeeperShell, caf::detached>(KeeperSetup{&place, front, actor, &home, kRestartPatience});
  makers.push_back(maker);
  caf::anon_send(actor, link::KeptBy{maker});
  caf::anon_send(actor, joined(place));
  return success();
}

// The order: nobody new comes; the hosts say farewell and end; nobody makes replicas; these settle what is in flight and give
// back what they have.
Result<void> Node::Impl::stop() {
  const std::lock_guard lock(stopping);
  if (stopped) return *stopped;
  for (const auto& place : places) place->close();
  const Error why{ErrorCode::closed, "the node stops"};
  for (const link::HostActor& host : site->hosts) end(*system, host);
  if (io) io->stop();
  for (const MakerDoor& maker : makers) end(*system, maker);
  for (const auto& place : places) place->quiet(why);
  const auto until = std::chrono::steady_clock::now() + options.runtime.step_timeout + kStopGrace;
  for (const auto& place : places) place->stop_device(until);
  Result<void> first = success();
  bool abandoned = false;
  for (const auto& place : places) {
    Result<void> given = place->give_back();
    if (!given && first) first = std::move(given);
    abandoned = abandoned || place->abandoned();
  }
  site->hosts.clear();
  makers.clear();
  if (abandoned) (void)system.release(), (void)config.release();
  system.reset();
  config.reset();
  stopped = first;
  return first;
}

Node::Node(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Node::~Node() { (void)stop(); }

Result<std::unique_ptr<Node>> Node::start(const NodeOptions& options, std::vector<ReplicaSource> sources) {
  std::unique_ptr<Node> node(new Node(std::make_unique<Impl>()));  // gives back on every way out
  node->impl_->options = options;
  TROUPE_TRY(node->impl_->start(std::move(sources)));
  return node;
}

std::uint16_t Node::port() const { return impl_->port; }

link::Io::Figures Node::figures() const { return impl_->io->figures(); }

std::vector<DeviceFacts> Node::facts() const {
  std::vector<DeviceFacts> out;
  const std::lock_guard lock(impl_->stopping);
  if (impl_->stopped) return out;
  for (const auto& place : impl_->places) {
    const auto peers = place->peers();
    if (!peers) continue;
    if (const auto facts = ask<DeviceFacts>(*impl_->system, peers->router, Ask{})) out.push_back(facts.value());
  }
  return out;
}

Result<void> Node::stop() { return impl_->stop(); }

}  // namespace troupe
