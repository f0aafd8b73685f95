#include "tests/tools/node/attack.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "actors/link/codec.h"
#include "tests/messages/samples.h"

namespace troupe::actors::link {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

Context context(const Credentials* c) {
  Context out(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  if (c != nullptr) {
    SSL_CTX_use_certificate_chain_file(out.get(), c->certificate.c_str());
    SSL_CTX_use_PrivateKey_file(out.get(), c->key.c_str(), SSL_FILETYPE_PEM);
  }
  return out;
}

class Wire {
 public:
  explicit Wire(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{2, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const linger hard{1, 0};  // no TIME_WAIT: a hundred thousand of them are all ports
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  ~Wire() {
    if (ssl_ != nullptr) SSL_free(ssl_);
    ::close(fd_);
  }
  Wire(const Wire&) = delete;
  bool connected() const { return connected_; }
  bool tls(SSL_CTX* context) {
    ssl_ = SSL_new(context);
    SSL_set_fd(ssl_, fd_);
    return SSL_connect(ssl_) == 1;
  }
  bool send(const Bytes& bytes) {
    if (ssl_ == nullptr) return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0;
    return SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) > 0;
  }
  // Whether the node ends it.
  void wait_end() {
    char buffer[4096];
    if (ssl_ == nullptr) {
      while (::recv(fd_, buffer, sizeof buffer, 0) > 0) {
      }
    } else {
      while (SSL_read(ssl_, buffer, sizeof buffer) > 0) {
      }
    }
  }

 private:
  int fd_;
  bool connected_ = false;
  SSL* ssl_ = nullptr;
};

template <class M>
Bytes frame(FrameWriter& writer, const M& m) {
  const auto bytes = writer.frame(m);
  return {bytes.begin(), bytes.end()};
}

class Attacker {
 public:
  explicit Attacker(const AttackPlan& plan)
      : plan_(plan), random_(plan.seed), good_(context(&plan.good)), stranger_(context(&plan.stranger)), nobody_(context(nullptr)) {}

  AttackReport run() {
    for (std::uint64_t i = 0; i < plan_.connections; ++i) one();
    return std::move(report_);
  }

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  Bytes garbage(std::size_t n) {
    Bytes out(n);
    for (auto& b : out) b = static_cast<std::uint8_t>(random_());
    return out;
  }
  void one() {
    Wire wire(plan_.port);
    if (!wire.connected()) {
      ++report_.failed;
      return;
    }
    switch (below(10)) {
      case 0:
        ++report_.made["silent"];
        return;
      case 1:
      case 2:
        ++report_.made["garbage"];
        wire.send(garbage(1 + below(4096)));
        return;
      case 3: {
        ++report_.made["garbage like TLS"];  // a record of a handshake, and what follows is none
        Bytes bytes = garbage(5 + below(600));
        bytes[0] = 22, bytes[1] = 3, bytes[2] = static_cast<std::uint8_t>(below(5));
        wire.send(bytes);
        return;
      }
      case 4:
        ++report_.made["no certificate"];
        if (wire.tls(nobody_.get())) wire.send(hello());
        return;
      case 5:
        ++report_.made["a stranger's certificate"];
        if (wire.tls(stranger_.get())) wire.send(hello());
        return;
      case 6:
        ++report_.made["announcements"];
        return with_certificate(wire, [&] { announce(wire); });
      case 7:
        ++report_.made["endless"];
        return with_certificate(wire, [&] { flood(wire); });
      default:
        ++report_.made["mutated"];
        return with_certificate(wire, [&] { mutated(wire); });
    }
  }
  template <class F>
  void with_certificate(Wire& wire, F f) {
    if (wire.tls(good_.get())) {
      f();
    } else {
      ++report_.failed;
    }
  }
  Bytes hello(FrameWriter* writer = nullptr) {
    FrameWriter own;
    Hello h;
    h.owner = 1 + random_();
    h.ref = {0, 1};
    h.heartbeat = kShortestHeartbeat * 100;
    h.silence = h.heartbeat * 10;
    return frame(writer != nullptr ? *writer : own, h);
  }
  bool send(Wire& wire, const Bytes& bytes) {
    ++report_.frames;
    return wire.send(bytes);
  }
  void announce(Wire& wire) {
    if (below(2) == 0) send(wire, hello());
    Bytes head = garbage(64);
    const std::uint32_t length = 100'000'000 + static_cast<std::uint32_t>(below(800'000'000));
    for (unsigned i = 0; i < 4; ++i) head[i] = static_cast<std::uint8_t>(length >> (8 * i));
    send(wire, head);
    for (int i = 0; i < 16 && send(wire, garbage(16 * 1024)); ++i) {
    }
  }
  // Valid frames without an end, which a node has to take up as slowly as it can.
  void flood(Wire& wire) {
    FrameWriter writer;
    if (!send(wire, hello(&writer))) return;
    for (std::uint32_t i = 0; i < plan_.flood_frames; ++i) {
      AskReport ask;
      ask.replica = {0, static_cast<std::uint32_t>(below(3))};
      if (!send(wire, below(2) == 0 ? frame(writer, ask) : frame(writer, Heartbeat{}))) return;
    }
  }
  void mutated(Wire& wire) {
    FrameWriter writer;
    std::vector<Bytes> frames{hello(&writer)};
    test::for_each_sample([&]<class M>(const M& m) {
      if constexpr (kToNode<M>) {
        M mine = m;
        mine.replica = {0, 1};
        frames.push_back(frame(writer, mine));
      }
    });
    const std::size_t spoilt = below(frames.size());
    for (std::size_t i = 0; i < frames.size(); ++i) {
      if (i >= spoilt) {
        Bytes& f = frames[i];
        for (std::uint64_t k = 1 + below(5); k > 0; --k)
          f[below(4) == 0 ? below(f.size()) : 4 + below(f.size() - 4)] = static_cast<std::uint8_t>(random_());
      }
      if (!send(wire, frames[i])) return;
    }
  }

  const AttackPlan& plan_;
  std::mt19937_64 random_;
  Context good_, stranger_, nobody_;
  AttackReport report_;
};

}  // namespace

AttackReport attack(const AttackPlan& plan) { return Attacker(plan).run(); }

std::uint64_t resident_mib(int pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6)) / 1024;
  }
  return 0;
}

}  // namespace troupe::actors::link
