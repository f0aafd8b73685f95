#include "actors/link/nodes.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "actors/link/codec.h"

namespace troupe::actors::link {
namespace {

// One question to one node: what it has.
class Question final : public Handler {
 public:
  Question() = default;
  void opened(const std::shared_ptr<Connection>& connection) override {
    connection_ = connection;
    Hello hello;
    hello.owner = 1;
    hello.replica = kNoReplica;
    hello.ref = {0, 1};
    hello.heartbeat = kShortestHeartbeat;
    hello.silence = 2 * kShortestHeartbeat;
    FrameWriter writer;
    connection->send(writer.frame(hello));
  }
  Result<void> on(const Frame& frame) override {
    TROUPE_TRY(auto message, reader_.read(frame));
    connection_->taken(kFrameHead + frame.payload.size());
    const std::lock_guard lock(mutex_);
    if (auto* welcome = std::get_if<Welcome>(&message)) answer_ = std::move(*welcome);
    if (auto* refused = std::get_if<Refused>(&message)) answer_ = std::move(refused->error);
    changed_.notify_all();
    return success();
  }
  void closed(const Error& why) override {
    connection_.reset();
    const std::lock_guard lock(mutex_);
    if (!answer_) answer_ = why;
    changed_.notify_all();
  }
  Result<Welcome> wait(std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, until, [&] { return answer_.has_value(); })) return Error{ErrorCode::timed_out, "it does not answer"};
    return *answer_;
  }

 private:
  FrameReader reader_{Side::node};
  std::shared_ptr<Connection> connection_;  // the transport's thread's
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Result<Welcome>> answer_;
};

}  // namespace

Result<std::vector<ReplicaSource>> node_sources(const std::vector<std::string>& nodes, const Credentials& credentials,
                                                const LinkOptions& options) {
  if (options.heartbeat.count() < kShortestHeartbeat || options.silence < 2 * options.heartbeat) {
    return Error{ErrorCode::bad_request, "a link's silence must be at least twice its heartbeat, and that at least a millisecond"};
  }
  TransportLimits limits;
  limits.max_frame = &most_bytes;
  TROUPE_TRY(auto started, Io::start(credentials, limits));
  const std::shared_ptr<Io> io = std::move(started);
  std::vector<std::pair<HostPort, std::shared_ptr<Question>>> asked;
  for (const std::string& node : nodes) {
    TROUPE_TRY(auto at, parse_host_port(node));
    asked.emplace_back(at, std::make_shared<Question>());
    io->connect(at.host, at.port, asked.back().second);
  }
  const auto until = std::chrono::steady_clock::now() + options.patience;
  std::vector<ReplicaSource> out;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    RemoteReplica replica{io, asked[i].first};
    replica.heartbeat = options.heartbeat;
    replica.silence = options.silence;
    std::vector<std::string> names{"?"};
    if (auto answer = asked[i].second->wait(until)) {
      Welcome& welcome = answer.value();
      replica.model = std::move(welcome.model);
      replica.tokens = welcome.tokens;
      names = std::move(welcome.replicas);
    }
    for (const std::string& name : names) {
      ReplicaSource source;
      source.name = nodes[i] + '/' + name;
      source.remote = std::make_shared<const RemoteReplica>(replica);
      out.push_back(std::move(source));
      ++replica.replica;
    }
  }
  return out;
}

}  // namespace troupe::actors::link
