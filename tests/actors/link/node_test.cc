// A runtime whose replicas are on nodes: what it gives is what the model gives, whatever becomes of the nodes meanwhile.
#include "tests/actors/link/node_rig.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

namespace troupe::test {
namespace {

device::ScriptedOptions script() {
  device::ScriptedOptions s;
  s.context = 1024;
  s.kv_blocks = 512;
  return s;
}

void submit(Runtime& runtime, Clients& clients, const Request& request) {
  const auto id = runtime.submit(request, clients.callback(request.client));
  ASSERT_TRUE(id) << id.error().what;
}

void expect_exact(Clients& clients, const std::vector<Request>& requests, const device::ScriptedOptions& s) {
  for (const Request& r : requests) {
    const Record got = clients.record(r.client);
    ASSERT_TRUE(got.finish) << r.client;
    EXPECT_EQ(got.wrong, "") << r.client;
    EXPECT_EQ(got.finish->error.what, "");
    EXPECT_FALSE(got.finish->other_arithmetic);
    EXPECT_EQ(got.tokens, expected(r, s)) << r.client;
  }
}

bool all_back(Node& node) {
  return eventually([&] {
    const auto facts = node.facts();
    bool back = !facts.empty();
    for (const DeviceFacts& f : facts) back = back && f.used_blocks + f.fenced_blocks == 0 && f.free_slots == f.total_slots;
    return back;
  });
}

std::vector<Request> many(std::uint64_t n, std::uint32_t tokens, const device::ScriptedOptions& s) {
  std::vector<Request> out;
  for (std::uint64_t i = 1; i <= n; ++i) {
    out.push_back(make_request(i, 3 + i % 7, tokens, s));
    out.back().stop.ignore_eos = true;
  }
  return out;
}

TEST(Node, ARequestFromEndToEnd) {
  Nodes nodes(script());
  nodes.start(0);
  auto runtime = nodes.runtime();
  ASSERT_TRUE(runtime);
  Clients clients;
  const std::vector<Request> requests = many(1, 20, script());
  submit(*runtime, clients, requests[0]);
  clients.wait_ended(1);
  expect_exact(clients, requests, script());
  EXPECT_EQ(runtime->metrics().replicas[0].state, ReplicaState::up);
  EXPECT_TRUE(all_back(nodes.node(0)));
  EXPECT_TRUE(runtime->stop());
  nodes.stop(0);
}

TEST(Node, TwoNodesOfTwoReplicasShareTheWork) {
  Nodes nodes(script());
  nodes.start(0, 2);
  nodes.start(1, 2);
  auto runtime = nodes.runtime();
  ASSERT_TRUE(runtime);
  Clients clients;
  const std::vector<Request> requests = many(60, 50, script());
  ASSERT_TRUE(eventually([&] {
    std::size_t up = 0;
    for (const ReplicaStatus& r : runtime->metrics().replicas) up += r.state == ReplicaState::up;
    return up == 4;
  }));
  for (const Request& r : requests) submit(*runtime, clients, r);
  clients.wait_ended(requests.size());
  expect_exact(clients, requests, script());
  const RuntimeMetrics m = runtime->metrics();
  ASSERT_EQ(m.replicas.size(), 4u);
  EXPECT_EQ(m.replicas[3].name, "127.0.0.1:" + std::to_string(nodes.port(1)) + "/host:1");
  EXPECT_TRUE(eventually([&] {
    for (const ReplicaStatus& r : runtime->metrics().replicas) {
      if (r.report.tokens == 0) return false;
    }
    return true;
  })) << "a replica had nothing to do";
  EXPECT_TRUE(runtime->stop());
}

TEST(Node, ACancelReachesIt) {
  Nodes nodes(script());
  nodes.start(0);
  auto runtime = nodes.runtime();
  Clients clients;
  Request r = many(1, 900, script())[0];
  submit(*runtime, clients, r);
  clients.wait_tokens(1, 3);
  const CancelOutcome outcome = runtime->cancel(1);
  clients.wait_ended(1);
  const Record got = clients.record(1);
  EXPECT_EQ(got.wrong, "");
  if (outcome == CancelOutcome::cancelled_running) {
    EXPECT_EQ(got.finish->reason, FinishReason::cancelled);
  }
  EXPECT_TRUE(all_back(nodes.node(0)));
  EXPECT_TRUE(runtime->drain(60s));
}

// The node goes and comes again while it has requests: they wait, and go on where they were.
TEST(Node, RequestsSurviveTheirNode) {
  Nodes nodes(script());
  nodes.start(0);
  auto runtime = nodes.runtime();
  Clients clients;
  const std::vector<Request> requests = many(10, 600, script());
  for (const Request& r : requests) submit(*runtime, clients, r);
  clients.wait_tokens(1, 20);
  nodes.stop(0);
  nodes.start(0);
  clients.wait_ended(requests.size());
  expect_exact(clients, requests, script());
  EXPECT_GE(runtime->metrics().replicas[0].replica.incarnation, 2u);
  EXPECT_TRUE(all_back(nodes.node(0)));
}

TEST(Node, RequestsMoveToAnotherNode) {
  Nodes nodes(script());
  for (std::size_t i = 0; i < 3; ++i) nodes.start(i);
  auto runtime = nodes.runtime();
  Clients clients;
  const std::vector<Request> requests = many(30, 600, script());
  for (const Request& r : requests) submit(*runtime, clients, r);
  for (std::size_t i = 0; i < 3; ++i) {
    clients.wait_tokens(10 * i + 1, 30);
    nodes.stop(i);
    nodes.start(i);
  }
  clients.wait_ended(requests.size());
  expect_exact(clients, requests, script());
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(all_back(nodes.node(i)));
}

TEST(Node, BelongsToOneRuntimeAtATimeAndToTheNextOneAfterwards) {
  Nodes nodes(script());
  nodes.start(0);
  auto first = nodes.runtime();
  Clients clients;
  const std::vector<Request> requests = many(4, 900, script());
  for (const Request& r : requests) submit(*first, clients, r);
  clients.wait_tokens(1, 5);
  auto second = nodes.runtime();
  ASSERT_TRUE(second);
  EXPECT_TRUE(eventually([&] {
    const auto error = second->metrics().replicas[0].error;
    return error.what.find("belongs to another runtime") != std::string::npos;
  }));
  Clients others;
  submit(*second, others, requests[0]);  // waits for it
  first.reset();
  others.wait_ended(1);
  expect_exact(others, {requests[0]}, script());
  EXPECT_TRUE(all_back(nodes.node(0))) << "of the first runtime's requests something is left";
}

TEST(Node, MayComeAfterTheRuntimeIfSomebodyKnowsTheModel) {
  Nodes nodes(script());
  nodes.start(0);
  nodes.start(1);
  nodes.stop(1);
  link::LinkOptions links = Nodes::quick();
  links.patience = 300ms;
  auto runtime = nodes.runtime(links);
  ASSERT_TRUE(runtime);
  EXPECT_EQ(runtime->metrics().replicas.size(), 2u);
  nodes.start(1);
  EXPECT_TRUE(eventually([&] { return runtime->metrics().replicas[1].state == ReplicaState::up; }));
  runtime.reset();

  nodes.stop(0);
  nodes.stop(1);
  auto sources = link::node_sources({"127.0.0.1:" + std::to_string(nodes.port(0))}, nodes.authority().issue("late"), links);
  ASSERT_TRUE(sources);
  const auto none = Runtime::start({}, std::move(sources.value()));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::unavailable) << none.error().what;
}

TEST(Node, DoesNotStartWithoutCertificates) {
  NodeOptions options;
  std::vector<ReplicaSource> sources(1);
  sources[0].open = []() -> Result<OpenedReplica> {
    return Error{ErrorCode::internal, "nothing is opened before the certificates are read"};
  };
  const auto node = Node::start(options, std::move(sources));
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().code, ErrorCode::bad_request);
  const auto links = link::node_sources({"127.0.0.1:1"}, {}, {});
  ASSERT_FALSE(links);
  EXPECT_EQ(links.error().code, ErrorCode::bad_request);
}

// Passes bytes on, both ways, until it is told to swallow them: then nobody hears anything, and no connection ends, as when a
// cable is pulled.
class Swallower {
 public:
  explicit Swallower(std::uint16_t to) : to_(to), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at = address(0);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size);
    port = ntohs(at.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Swallower() {
    stop_ = true;
    thread_.join();
    for (const auto& [a, b] : pairs_) ::close(a), ::close(b);
    ::close(listener_);
  }
  std::uint16_t port = 0;
  std::atomic<bool> swallows{false};

 private:
  static sockaddr_in address(std::uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return out;
  }
  void run() {
    char buffer[65536];
    while (!stop_) {
      std::vector<pollfd> fds{{listener_, POLLIN, 0}};
      for (const auto& [a, b] : pairs_) fds.push_back({a, POLLIN, 0}), fds.push_back({b, POLLIN, 0});
      if (::poll(fds.data(), fds.size(), 20) <= 0) continue;
      for (std::size_t i = 1; i < fds.size(); ++i) {
        if (fds[i].revents == 0) continue;
        const ssize_t n = ::recv(fds[i].fd, buffer, sizeof buffer, MSG_DONTWAIT);
        const auto& pair = pairs_[(i - 1) / 2];
        const int other = i % 2 == 1 ? pair.second : pair.first;
        if (n > 0 && !swallows) {
          for (ssize_t at = 0; at < n;) {
            const ssize_t sent = ::send(other, buffer + at, static_cast<std::size_t>(n - at), MSG_NOSIGNAL);
            if (sent <= 0) break;
            at += sent;
          }
        } else if (n == 0 && !swallows) {
          ::shutdown(other, SHUT_RDWR);
          ::shutdown(fds[i].fd, SHUT_RDWR);
        }
      }
      if (fds[0].revents != 0) {
        const int in = ::accept(listener_, nullptr, nullptr);
        if (swallows) {
          ::close(in);
          continue;
        }
        const int out = ::socket(AF_INET, SOCK_STREAM, 0);
        const sockaddr_in to = address(to_);
        if (::connect(out, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
          ::close(in), ::close(out);
        else
          pairs_.emplace_back(in, out);
      }
    }
  }

  std::uint16_t to_;
  int listener_;
  std::atomic<bool> stop_{false};
  std::vector<std::pair<int, int>> pairs_;
  std::thread thread_;
};

// A half-open link: both ends notice by silence, and the requests go on elsewhere.
TEST(Node, AHalfOpenLinkIsNoticed) {
  Nodes nodes(script());
  nodes.start(0);
  nodes.start(1);
  Swallower wire(nodes.port(0));
  link::LinkOptions links;
  links.heartbeat = 100ms;
  links.silence = 1000ms;
  auto runtime = nodes.runtime(links, {}, wire.port);
  ASSERT_TRUE(runtime);
  Clients clients;
  const std::vector<Request> requests = many(20, 900, script());
  for (const Request& r : requests) submit(*runtime, clients, r);
  clients.wait_tokens(1, 5);
  clients.wait_tokens(2, 5);
  wire.swallows = true;
  // Why it is not up may be that, or (where a busy machine had lost the link before) that it could not come back.
  ASSERT_TRUE(eventually([&] { return runtime->metrics().replicas[0].state != ReplicaState::up; }));
  clients.wait_ended(requests.size());
  expect_exact(clients, requests, script());
  EXPECT_TRUE(all_back(nodes.node(0))) << "the node has not noticed";
  wire.swallows = false;
  EXPECT_TRUE(eventually([&] { return runtime->metrics().replicas[0].state == ReplicaState::up; })) << "it is not back";
}

}  // namespace
}  // namespace troupe::test
