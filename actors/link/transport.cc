#include "actors/link/transport.h"

#include <fmt/format.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <atomic>
#include <charconv>
#include <future>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::actors::link {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptPause{100};  // after a failure, such as no free file descriptor
constexpr std::chrono::seconds kFlush{1};

Error failed(const char* what, const error_code& error) { return {ErrorCode::io_failed, fmt::format("{}: {}", what, error.message())}; }

class IoThread;

class TlsConnection final : public Connection, public std::enable_shared_from_this<TlsConnection> {
 public:
  TlsConnection(IoThread& io, tcp::socket socket, bool incoming, std::shared_ptr<Handler> handler);

  bool send(std::span<const std::uint8_t> frame) override;
  void close(Error why, How how) override;
  void taken(std::size_t bytes) override;
  const std::string& peer() const override { return peer_; }

  // The Io's thread from here on.
  void connect(const std::string& host, std::uint16_t port);
  void shake_hands();
  void end(Error why);
  bool framed() const { return framed_; }
  bool incoming() const { return incoming_; }

 private:
  friend class IoThread;
  void arm();
  void read();
  void read_on();
  bool cut(std::size_t n);
  void flush();
  void finish(Error why);

  IoThread& io_;
  asio::ssl::stream<tcp::socket> stream_;
  asio::steady_timer timer_;
  tcp::resolver resolver_;
  const bool incoming_;
  std::shared_ptr<Handler> handler_;
  std::string peer_;
  FrameCutter cutter_;
  std::array<std::uint8_t, 16 * 1024> input_;
  std::vector<std::uint8_t> writing_;
  bool write_runs_ = false;
  bool opened_ = false;
  bool framed_ = false;  // a frame came
  bool ended_ = false;
  std::atomic<std::size_t> untaken_{0};
  std::atomic<bool> paused_{false};
  std::list<std::shared_ptr<TlsConnection>>::iterator place_;

  std::mutex mutex_;
  std::vector<std::uint8_t> queued_;  // guarded by mutex_, as all below
  std::size_t unsent_ = 0;            // with what is being written
  bool flush_posted_ = false;
  bool no_more_ = false;
};

class IoThread final : public Io {
 public:
  explicit IoThread(const TransportLimits& limits) : limits_(limits) {}
  ~IoThread() override { stop(); }

  Result<void> open(const Credentials& c);
  void run() {
    thread_ = std::thread([this] {
      (void)pthread_setname_np(pthread_self(), "troupe.link");
      io_.run();
    });
  }
  Result<std::uint16_t> listen(const std::string& address, std::uint16_t port, Accept accept) override;
  void connect(const std::string& host, std::uint16_t port, std::shared_ptr<Handler> handler) override;
  void stop() override;
  Figures figures() const override { return {accepted_.load(), authenticated_.load(), refused_.load(), open_.load()}; }

 private:
  friend class TlsConnection;
  void accept();
  void on_accept(const error_code& error, tcp::socket socket);
  void make_room();
  std::shared_ptr<TlsConnection> add(tcp::socket socket, bool incoming, std::shared_ptr<Handler> handler);

  const TransportLimits limits_;
  asio::io_context io_{1};
  asio::ssl::context tls_{asio::ssl::context::tlsv13};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer pause_{io_};
  Accept accept_;
  std::list<std::shared_ptr<TlsConnection>> connections_;  // the oldest first
  std::uint32_t shaking_ = 0;                              // incoming ones without a frame
  bool stopping_ = false;
  std::atomic<std::uint64_t> accepted_{0}, authenticated_{0}, refused_{0};
  std::atomic<std::uint32_t> open_{0};
  std::once_flag stopped_;
  std::thread thread_;
};

// ---- one connection

TlsConnection::TlsConnection(IoThread& io, tcp::socket socket, bool incoming, std::shared_ptr<Handler> handler)
    : io_(io),
      stream_(std::move(socket), io.tls_),
      timer_(io.io_),
      resolver_(io.io_),
      incoming_(incoming),
      handler_(std::move(handler)),
      cutter_(io.limits_.max_frame) {}

bool TlsConnection::send(std::span<const std::uint8_t> frame) {
  bool post = false;
  {
    const std::lock_guard lock(mutex_);
    if (no_more_) return false;
    if (unsent_ + frame.size() > io_.limits_.max_queued) {
      no_more_ = true;
    } else {
      queued_.insert(queued_.end(), frame.begin(), frame.end());
      unsent_ += frame.size();
      post = !std::exchange(flush_posted_, true);
    }
    if (!no_more_ && !post) return true;
  }
  if (post) {
    asio::post(io_.io_, [self = shared_from_this()] { self->flush(); });
    return true;
  }
  asio::post(io_.io_, [self = shared_from_this()] {
    self->end({ErrorCode::overloaded, fmt::format("{} does not take what it is sent: {} bytes wait, which is the limit", self->peer_,
                                                  self->io_.limits_.max_queued)});
  });
  return false;
}

void TlsConnection::close(Error why, How how) {
  asio::post(io_.io_, [self = shared_from_this(), why = std::move(why), how]() mutable {
    if (how == How::at_once || !self->opened_) return self->end(std::move(why));
    self->finish(std::move(why));
  });
}

// Lets what is queued go out, and ends.
void TlsConnection::finish(Error why) {
  bool empty = false;
  {
    const std::lock_guard lock(mutex_);
    no_more_ = true;
    empty = unsent_ == 0;
  }
  if (empty || ended_) return end(std::move(why));
  timer_.expires_after(std::chrono::milliseconds(10));
  const auto until = std::chrono::steady_clock::now() + kFlush;
  const auto look = [self = shared_from_this(), why = std::move(why), until](const auto& again, const error_code& stopped) -> void {
    if (stopped || self->ended_) return self->end(why);
    {
      const std::lock_guard lock(self->mutex_);
      if (self->unsent_ != 0 && std::chrono::steady_clock::now() < until) {
        self->timer_.expires_after(std::chrono::milliseconds(10));
        return self->timer_.async_wait([again](const error_code& e) { again(again, e); });
      }
    }
    self->end(why);
  };
  timer_.async_wait([look](const error_code& e) { look(look, e); });
}

void TlsConnection::arm() {
  timer_.expires_after(io_.limits_.handshake);
  timer_.async_wait([self = shared_from_this()](const error_code& stopped) {
    if (!stopped)
      self->end({ErrorCode::timed_out, fmt::format("{}: no handshake within {} ms", self->peer_, self->io_.limits_.handshake.count())});
  });
}

void TlsConnection::connect(const std::string& host, std::uint16_t port) {
  peer_ = fmt::format("{}:{}", host, port);
  arm();
  resolver_.async_resolve(host, std::to_string(port),
                          [self = shared_from_this()](const error_code& error, const tcp::resolver::results_type& found) {
                            if (self->ended_) return;
                            if (error) return self->end(failed(self->peer_.c_str(), error));
                            asio::async_connect(self->stream_.next_layer(), found, [self](const error_code& refused, const tcp::endpoint&) {
                              if (self->ended_) return;
                              if (refused) return self->end(failed(self->peer_.c_str(), refused));
                              self->shake_hands();
                            });
                          });
}

void TlsConnection::shake_hands() {
  if (incoming_) {
    arm();
    error_code unknown;
    const tcp::endpoint from = stream_.next_layer().remote_endpoint(unknown);
    peer_ = fmt::format("{}:{}", from.address().to_string(), from.port());
  }
  error_code ignored;
  stream_.next_layer().set_option(tcp::no_delay(true), ignored);
  const auto role = incoming_ ? asio::ssl::stream_base::server : asio::ssl::stream_base::client;
  stream_.async_handshake(role, [self = shared_from_this()](const error_code& error) {
    if (self->ended_) return;
    if (error) return self->end(failed(fmt::format("{}: no TLS", self->peer_).c_str(), error));
    ++self->io_.authenticated_;
    self->opened_ = true;
    self->handler_->opened(self);
    self->read();
  });
}

void TlsConnection::read() {
  stream_.async_read_some(asio::buffer(input_), [self = shared_from_this()](const error_code& error, std::size_t n) {
    if (self->ended_) return;
    // A peer's program that ended says no farewell.
    if (error == asio::error::eof || error == asio::ssl::error::stream_truncated)
      return self->end({ErrorCode::closed, fmt::format("{} ended the connection", self->peer_)});
    if (error) return self->end(failed(self->peer_.c_str(), error));
    if (self->cut(n)) self->read_on();
  });
}

void TlsConnection::read_on() {
  paused_ = true;
  if (untaken_ <= io_.limits_.max_untaken && paused_.exchange(false)) read();
}

void TlsConnection::taken(std::size_t bytes) {
  const std::size_t before = untaken_.fetch_sub(bytes);
  if (before - bytes > io_.limits_.max_untaken || !paused_.exchange(false)) return;
  asio::post(io_.io_, [self = shared_from_this()] {
    if (!self->ended_) self->read();
  });
}

// False: it has ended.
bool TlsConnection::cut(std::size_t n) {
  cutter_.put({input_.data(), n});
  for (;;) {
    const auto frame = cutter_.next();
    if (frame && frame.value()) untaken_ += kFrameHead + frame.value()->payload.size();
    const auto taken = !frame ? Result<void>(frame.error()) : frame.value() ? handler_->on(*frame.value()) : success();
    if (!taken) {
      end({taken.error().code, fmt::format("{}: {}", peer_, taken.error().what)});
      return false;
    }
    if (ended_) return false;
    if (!frame.value()) return true;
    if (!std::exchange(framed_, true)) {
      timer_.cancel();
      if (incoming_) --io_.shaking_;
    }
  }
}

void TlsConnection::flush() {
  if (ended_ || write_runs_ || !opened_) return;
  {
    const std::lock_guard lock(mutex_);
    writing_.swap(queued_);
    queued_.clear();
    flush_posted_ = !writing_.empty();
  }
  if (writing_.empty()) return;
  write_runs_ = true;
  asio::async_write(stream_, asio::buffer(writing_), [self = shared_from_this()](const error_code& error, std::size_t) {
    self->write_runs_ = false;
    if (self->ended_) return;
    if (error) return self->end(failed(self->peer_.c_str(), error));
    {
      const std::lock_guard lock(self->mutex_);
      self->unsent_ -= self->writing_.size();
    }
    self->writing_.clear();
    self->flush();
  });
}

void TlsConnection::end(Error why) {
  if (std::exchange(ended_, true)) return;
  {
    const std::lock_guard lock(mutex_);
    no_more_ = true;
  }
  timer_.cancel();
  resolver_.cancel();
  error_code ignored;
  stream_.next_layer().close(ignored);  // without TLS' farewell: who is told to go need not be waited for
  if (incoming_ && !framed_) {
    --io_.shaking_;
    ++io_.refused_;
  }
  const auto self = shared_from_this();
  io_.connections_.erase(place_);
  io_.open_ = static_cast<std::uint32_t>(io_.connections_.size());
  std::exchange(handler_, nullptr)->closed(why);
}

// ---- all of them

Result<void> IoThread::open(const Credentials& c) {
  for (const auto& [path, what] : {std::pair{&c.certificate, "--cert"}, {&c.key, "--key"}, {&c.ca, "--ca"}}) {
    if (path->empty()) {
      return Error{ErrorCode::bad_request, fmt::format("{} is missing: nodes speak to each other by TLS with a certificate on both sides, "
                                                       "and not without; give --cert, --key and --ca",
                                                       what)};
    }
  }
  error_code error;
  SSL_CTX* raw = tls_.native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);
  tls_.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert, error);
  if (!error) tls_.load_verify_file(c.ca, error);
  if (error) return Error{ErrorCode::bad_file, fmt::format("{}: no usable CA certificate: {}", c.ca, error.message())};
  tls_.use_certificate_chain_file(c.certificate, error);
  if (error) return Error{ErrorCode::bad_file, fmt::format("{}: no usable certificate: {}", c.certificate, error.message())};
  tls_.use_private_key_file(c.key, asio::ssl::context::pem, error);
  if (error || SSL_CTX_check_private_key(raw) != 1)
    return Error{ErrorCode::bad_file, fmt::format("{}: no key that fits the certificate", c.key)};
  return success();
}

Result<std::uint16_t> IoThread::listen(const std::string& address, std::uint16_t port, Accept accept) {
  error_code error;
  const auto at = asio::ip::make_address(address, error);
  if (error) return Error{ErrorCode::bad_request, fmt::format("\"{}\" is no address to listen at; give an IP address", address)};
  const tcp::endpoint endpoint(at, port);
  std::promise<Result<std::uint16_t>> done;
  asio::post(io_, [&] {
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (error) {
      return done.set_value(Error{ErrorCode::io_failed, fmt::format("cannot listen at {} port {}: {}", address, port, error.message())});
    }
    accept_ = std::move(accept);
    this->accept();
    done.set_value(acceptor_.local_endpoint().port());
  });
  return done.get_future().get();
}

void IoThread::accept() {
  acceptor_.async_accept(io_, [this](const error_code& error, tcp::socket socket) { on_accept(error, std::move(socket)); });
}

void IoThread::on_accept(const error_code& error, tcp::socket socket) {
  if (stopping_ || error == asio::error::operation_aborted) return;
  if (error) {
    pause_.expires_after(kAcceptPause);
    return pause_.async_wait([this](const error_code& stopped) {
      if (!stopped && !stopping_) accept();
    });
  }
  ++accepted_;
  make_room();
  auto handler = connections_.size() - shaking_ < limits_.max_connections ? accept_() : nullptr;
  if (handler) {
    ++shaking_;
    add(std::move(socket), true, std::move(handler))->shake_hands();
  } else {
    ++refused_;
    error_code ignored;
    socket.close(ignored);
  }
  accept();
}

// An honest peer needs milliseconds: whoever has taken longest is the least likely to be one.
void IoThread::make_room() {
  if (shaking_ < limits_.max_handshakes) return;
  for (const auto& connection : connections_) {
    if (!connection->incoming() || connection->framed()) continue;
    const std::shared_ptr<TlsConnection> oldest = connection;
    return oldest->end({ErrorCode::overloaded, "others want to connect, and its handshake takes long"});
  }
}

std::shared_ptr<TlsConnection> IoThread::add(tcp::socket socket, bool incoming, std::shared_ptr<Handler> handler) {
  auto connection = std::make_shared<TlsConnection>(*this, std::move(socket), incoming, std::move(handler));
  connection->place_ = connections_.insert(connections_.end(), connection);
  open_ = static_cast<std::uint32_t>(connections_.size());
  return connection;
}

void IoThread::connect(const std::string& host, std::uint16_t port, std::shared_ptr<Handler> handler) {
  asio::post(io_, [this, host, port, handler = std::move(handler)]() mutable {
    if (stopping_) return handler->closed({ErrorCode::closed, "the transport has stopped"});
    add(tcp::socket(io_), false, std::move(handler))->connect(host, port);
  });
}

void IoThread::stop() {
  std::call_once(stopped_, [this] {
    asio::post(io_, [this] {
      stopping_ = true;
      error_code ignored;
      acceptor_.close(ignored);
      pause_.cancel();
      while (!connections_.empty()) {
        const std::shared_ptr<TlsConnection> connection = connections_.front();
        connection->end({ErrorCode::closed, "stopping"});
      }
      accept_ = nullptr;
      work_.reset();
    });
    if (thread_.joinable()) thread_.join();
  });
}

}  // namespace

Result<std::unique_ptr<Io>> Io::start(const Credentials& credentials, const TransportLimits& limits) {
  auto io = std::make_unique<IoThread>(limits);
  TROUPE_TRY(io->open(credentials));
  io->run();
  return std::unique_ptr<Io>(std::move(io));
}

Result<HostPort> parse_host_port(const std::string& text) {
  HostPort out;
  const std::size_t colon = text.rfind(':');
  const std::string port = colon == text.npos ? "" : text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (colon == 0 || port.empty() || error != std::errc{} || end != port.data() + port.size()) {
    return Error{ErrorCode::bad_request, fmt::format("\"{}\" must be HOST:PORT, such as 127.0.0.1:4100 or [::1]:4100", text)};
  }
  out.host = text.substr(0, colon);
  if (out.host.starts_with('[') && out.host.ends_with(']')) out.host = out.host.substr(1, out.host.size() - 2);
  return out;
}

}  // namespace troupe::actors::link
