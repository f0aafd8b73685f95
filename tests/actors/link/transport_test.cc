// What reaches a handler and what does not. No test depends on how fast anything is: what has to be shut out is waited for
// until it is.
#include "actors/link/transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "tests/actors/link/authority.h"

namespace troupe::actors::link {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLimit = 1000;
std::size_t limit(std::uint8_t) { return kLimit; }

std::vector<std::uint8_t> frame(std::uint8_t type, const std::string& text) {
  const std::size_t n = text.size() + 1;
  std::vector<std::uint8_t> out{static_cast<std::uint8_t>(n), static_cast<std::uint8_t>(n >> 8), static_cast<std::uint8_t>(n >> 16),
                                static_cast<std::uint8_t>(n >> 24), type};
  out.insert(out.end(), text.begin(), text.end());
  return out;
}

// Keeps what it hears.
class Ear final : public Handler {
 public:
  explicit Ear(bool takes = true) : takes_(takes) {}
  void opened(const std::shared_ptr<Connection>& c) override {
    const std::lock_guard lock(mutex_);
    connection_ = c;
    changed_.notify_all();
  }
  Result<void> on(const Frame& f) override {
    const std::lock_guard lock(mutex_);
    frames_.push_back(std::to_string(f.type) + std::string(f.payload.begin(), f.payload.end()));
    if (frames_.back() == "0refuse") return Error{ErrorCode::bad_file, "refused"};
    if (takes_) connection_->taken(kFrameHead + f.payload.size());
    changed_.notify_all();
    return success();
  }
  void closed(const Error& why) override {
    const std::lock_guard lock(mutex_);
    ++closed_;
    why_ = why;
    changed_.notify_all();
  }
  template <class F>
  void until(F f) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, f);
  }
  void until_open() {
    until([this] { return connection_ != nullptr || closed_ > 0; });
  }
  void until_closed() {
    until([this] { return closed_ > 0; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Connection> connection_;
  std::vector<std::string> frames_;
  int closed_ = 0;
  Error why_;

 private:
  bool takes_;
};

struct Net {
  Authority ours{"ours"}, theirs{"theirs"};
  std::unique_ptr<Io> server, client;
  std::uint16_t port = 0;
  std::mutex mutex;
  std::vector<std::shared_ptr<Ear>> heard;
  std::condition_variable changed;
  bool server_takes = true;

  explicit Net(TransportLimits limits = {}) {
    limits.max_frame = &limit;
    server = Io::start(ours.issue("server"), limits).value();
    limits.handshake = TransportLimits{}.handshake;
    client = Io::start(ours.issue("client"), limits).value();
    port = server
               ->listen("127.0.0.1", 0,
                        [this] {
                          const std::lock_guard lock(mutex);
                          heard.push_back(std::make_shared<Ear>(server_takes));
                          changed.notify_all();
                          return heard.back();
                        })
               .value();
  }
  std::shared_ptr<Ear> connect(Io& io) {
    auto ear = std::make_shared<Ear>();
    io.connect("127.0.0.1", port, ear);
    ear->until_open();
    return ear;
  }
  std::shared_ptr<Ear> server_ear(std::size_t i) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return heard.size() > i; });
    return heard[i];
  }
  void still_works() {
    auto ear = connect(*client);
    ASSERT_TRUE(ear->connection_) << ear->why_.what;
    const std::size_t i = [&] {
      const std::lock_guard lock(mutex);
      return heard.size() - 1;
    }();
    EXPECT_TRUE(ear->connection_->send(frame(0, "hello")));
    auto far = server_ear(i);
    far->until([&] { return !far->frames_.empty() || far->closed_ > 0; });
    EXPECT_EQ(far->frames_, std::vector<std::string>{"0hello"});
  }
};

// A TCP connection without anything over it.
struct Plain {
  int fd;
  explicit Plain(std::uint16_t port) : fd(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = ::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  Plain(Plain&& o) noexcept : fd(std::exchange(o.fd, -1)), connected(o.connected) {}
  ~Plain() {
    if (fd >= 0) ::close(fd);
  }
  void send(const std::string& bytes) const { (void)::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // Until the peer ends it; what came.
  std::string rest() const {
    std::string out;
    char buffer[4096];
    for (ssize_t n; (n = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) out.append(buffer, static_cast<std::size_t>(n));
    return out;
  }
  bool connected = false;
};

TEST(Transport, CarriesFramesBothWays) {
  Net net;
  auto ear = net.connect(*net.client);
  ASSERT_TRUE(ear->connection_) << ear->why_.what;
  auto far = net.server_ear(0);
  far->until_open();
  std::vector<std::string> sent;
  for (int i = 0; i < 1000; ++i) {
    sent.push_back("3" + std::string(static_cast<std::size_t>(i) % 900, 'x') + std::to_string(i));
    ASSERT_TRUE(ear->connection_->send(frame(3, sent.back().substr(1))));
    ASSERT_TRUE(far->connection_->send(frame(3, sent.back().substr(1))));
  }
  ear->until([&] { return ear->frames_.size() == sent.size(); });
  far->until([&] { return far->frames_.size() == sent.size(); });
  EXPECT_EQ(ear->frames_, sent);
  EXPECT_EQ(far->frames_, sent);
  ear->connection_->close({ErrorCode::closed, "done"}, Connection::How::flush);
  ear->until_closed();
  far->until_closed();
  EXPECT_EQ(far->why_.code, ErrorCode::closed) << far->why_.what;
  EXPECT_EQ(ear->why_.what, "done");
}

TEST(Transport, WhatIsQueuedGoesOutBeforeAFlushingClose) {
  Net net;
  auto ear = net.connect(*net.client);
  ASSERT_TRUE(ear->connection_);
  for (int i = 0; i < 500; ++i) ear->connection_->send(frame(1, std::string(900, 'y')));
  ear->connection_->close({ErrorCode::closed, "done"}, Connection::How::flush);
  auto far = net.server_ear(0);
  far->until_closed();
  EXPECT_EQ(far->frames_.size(), 500u);
}

TEST(Transport, NothingStartsWithoutCertificates) {
  Authority ours("ours");
  TransportLimits limits;
  limits.max_frame = &limit;
  const Credentials good = ours.issue("a");
  for (std::string Credentials::*missing : {&Credentials::certificate, &Credentials::key, &Credentials::ca}) {
    Credentials c = good;
    (c.*missing).clear();
    const auto io = Io::start(c, limits);
    ASSERT_FALSE(io);
    EXPECT_EQ(io.error().code, ErrorCode::bad_request);
    c.*missing = good.certificate == c.*missing ? good.key : "/nowhere";
    const auto again = Io::start(c, limits);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code, ErrorCode::bad_file) << again.error().what;
  }
  const Credentials other = ours.issue("b");
  const auto mixed = Io::start({good.certificate, other.key, good.ca}, limits);
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().code, ErrorCode::bad_file) << mixed.error().what;
}

TEST(Transport, APeerWithoutAGoodCertificateReachesNoHandler) {
  Net net;
  TransportLimits limits;
  limits.max_frame = &limit;
  Credentials stranger = net.theirs.issue("stranger");
  stranger.ca = net.ours.certificate();  // trusts us, and is not ours
  Credentials expired = net.ours.issue("expired", -1);
  int refused = 0;
  for (const Credentials& c : {stranger, expired}) {
    auto io = Io::start(c, limits).value();
    auto ear = std::make_shared<Ear>();
    io->connect("127.0.0.1", net.port, ear);
    ear->until_closed();  // in TLS 1.3 the client learns of it after it believed to be in
    auto far = net.server_ear(static_cast<std::size_t>(refused++));
    far->until_closed();
    EXPECT_FALSE(far->connection_) << "a peer without a certificate of ours reached a handler";
    EXPECT_TRUE(far->frames_.empty());
  }
  // And a server that is not ours gets nothing from us.
  auto other = Io::start(net.theirs.issue("server"), limits).value();
  auto accepted = std::make_shared<Ear>();
  const auto port = other->listen("127.0.0.1", 0, [&] { return accepted; }).value();
  auto ear = std::make_shared<Ear>();
  net.client->connect("127.0.0.1", port, ear);
  ear->until_closed();
  EXPECT_FALSE(ear->connection_);
  net.still_works();
}

TEST(Transport, PlainConnectionsAndTlsWithoutACertificateAreRefused) {
  Net net;
  Plain plain(net.port);
  plain.send(std::string("\x05\0\0\0\0hell", 9));
  (void)plain.rest();
  net.server_ear(0)->until_closed();
  EXPECT_FALSE(net.server_ear(0)->connection_);

  Plain bare(net.port);
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* ssl = SSL_new(context);
  SSL_set_fd(ssl, bare.fd);
  if (SSL_connect(ssl) == 1) {
    char byte = 0;
    EXPECT_LE(SSL_read(ssl, &byte, 1), 0);
  }
  SSL_free(ssl);
  SSL_CTX_free(context);
  net.server_ear(1)->until_closed();
  EXPECT_FALSE(net.server_ear(1)->connection_);
  net.still_works();
}

TEST(Transport, SilentConnectionsGiveWayAndTimeOut) {
  TransportLimits limits;
  limits.max_handshakes = 4;
  limits.handshake = 300ms;
  Net net(limits);
  std::vector<Plain> silent;
  for (int i = 0; i < 20; ++i) silent.emplace_back(net.port);
  (void)net.server_ear(19);
  net.server_ear(15)->until_closed();  // gave way to the last four
  EXPECT_EQ(net.server_ear(0)->why_.code, ErrorCode::overloaded);
  net.still_works();
  net.server_ear(19)->until_closed();
  EXPECT_EQ(net.server_ear(19)->why_.code, ErrorCode::timed_out);
}

// With a certificate and without a word.
TEST(Transport, TheFirstFrameBelongsToTheHandshake) {
  TransportLimits limits;
  limits.handshake = 200ms;
  Net net(limits);
  auto ear = net.connect(*net.client);
  auto far = net.server_ear(0);
  far->until_closed();
  EXPECT_EQ(far->why_.code, ErrorCode::timed_out);
}

TEST(Transport, NoMoreThanTheLimitOfConnections) {
  TransportLimits limits;
  limits.max_connections = 2;
  Net net(limits);
  std::vector<std::shared_ptr<Ear>> in;
  for (std::size_t i = 0; i < 2; ++i) {
    in.push_back(net.connect(*net.client));
    in.back()->connection_->send(frame(0, "hello"));
    auto far = net.server_ear(i);
    far->until([&] { return !far->frames_.empty(); });
  }
  auto third = std::make_shared<Ear>();
  net.client->connect("127.0.0.1", net.port, third);
  third->until_closed();
  EXPECT_TRUE(third->frames_.empty());
  in[0]->connection_->close({ErrorCode::closed, ""}, Connection::How::at_once);
  net.server_ear(0)->until_closed();
  net.still_works();
}

TEST(Transport, AFrameThatIsTooLongOrRefusedEndsItsConnectionOnly) {
  Net net;
  auto good = net.connect(*net.client);
  auto good_far = net.server_ear(0);
  good->connection_->send(frame(0, "hello"));
  good_far->until([&] { return !good_far->frames_.empty(); });
  const std::string long_frame(kLimit + 1, 'x');
  const std::vector<std::vector<std::uint8_t>> bad{frame(1, long_frame), {0, 0, 0, 0, 1}, {0xFF, 0xFF, 0xFF, 0xFF, 1}, frame(0, "refuse")};
  for (std::size_t i = 0; i < bad.size(); ++i) {
    auto ear = net.connect(*net.client);
    ear->connection_->send(bad[i]);
    auto far = net.server_ear(i + 1);
    far->until_closed();
    EXPECT_EQ(far->why_.code, ErrorCode::bad_file);
    ear->until_closed();
  }
  good->connection_->send(frame(0, "again"));
  good_far->until([&] { return good_far->frames_.size() == 2; });
}

TEST(Transport, APeerThatDoesNotReadIsCutOff) {
  TransportLimits limits;
  limits.max_queued = 100'000;
  limits.max_untaken = 10'000;
  Net net(limits);
  net.server_takes = false;
  auto ear = net.connect(*net.client);
  auto far = net.server_ear(0);
  far->until_open();
  std::uint64_t sent = 0;
  while (ear->connection_->send(frame(1, std::string(900, 'x')))) ++sent;
  ear->until_closed();
  EXPECT_EQ(ear->why_.code, ErrorCode::overloaded) << ear->why_.what;
  EXPECT_GT(sent, 100u);
  std::size_t untaken = 0;
  {
    const std::lock_guard lock(far->mutex_);
    untaken = far->frames_.size() * (kFrameHead + 900);
  }
  EXPECT_LT(untaken, 100'000u) << "it was given more than may be untaken and one read";
  far->connection_->taken(untaken);  // it does not hear that the other end is gone while it does not read
  for (std::size_t seen = untaken / (kFrameHead + 900);;) {
    far->until([&] { return far->closed_ > 0 || far->frames_.size() > seen; });
    const std::lock_guard lock(far->mutex_);
    far->connection_->taken((far->frames_.size() - seen) * (kFrameHead + 900));
    seen = far->frames_.size();
    if (far->closed_ > 0) break;
  }
  net.server_takes = true;
  net.still_works();
}

TEST(Transport, ReadingGoesOnWhenWhatCameIsTaken) {
  TransportLimits limits;
  limits.max_untaken = 2'000;
  Net net(limits);
  net.server_takes = false;
  auto ear = net.connect(*net.client);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(ear->connection_->send(frame(1, std::string(900, 'x'))));
  auto far = net.server_ear(0);
  std::size_t taken = 0;
  while (taken < 1000) {
    far->until([&] { return far->frames_.size() > taken; });
    const std::size_t now = [&] {
      const std::lock_guard lock(far->mutex_);
      return far->frames_.size();
    }();
    for (; taken < now; ++taken) far->connection_->taken(kFrameHead + 900);
  }
  EXPECT_EQ(far->frames_.size(), 1000u);
}

TEST(Transport, StopEndsEverything) {
  Net net;
  auto ear = net.connect(*net.client);
  auto far = net.server_ear(0);
  far->until_open();
  net.server->stop();
  EXPECT_EQ(far->closed_, 1);
  EXPECT_FALSE(far->connection_->send(frame(0, "x")));
  ear->until_closed();
  auto late = std::make_shared<Ear>();
  net.client->connect("127.0.0.1", net.port, late);
  late->until_closed();
  EXPECT_EQ(late->why_.code, ErrorCode::io_failed) << late->why_.what;
}

TEST(Transport, ReadsAddresses) {
  EXPECT_EQ(parse_host_port("[::1]:4100").value().host, "::1");
  EXPECT_EQ(parse_host_port("node-a:4100").value().port, 4100);
  for (const char* bad : {"", "x", ":1", "x:", "x:y", "x:70000", "x:1y"}) EXPECT_FALSE(parse_host_port(bad)) << bad;
}

}  // namespace
}  // namespace troupe::actors::link
