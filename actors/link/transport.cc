#include "actors/link/transport.h"

#include <fmt/format.h>
#include <pthread.h>
#include <boost/asio/post.hpp>

#include <charconv>
#include <future>

#include "actors/link/transport_state.h"

namespace troupe::actors::link {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};  // after a failure, such as no free file descriptor

}  // namespace

void IoThread::run() {
  thread_ = std::thread([this] {
    (void)pthread_setname_np(pthread_self(), "troupe.link");
    io_.run();
  });
}

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
