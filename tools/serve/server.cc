#include "tools/serve/server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "tools/serve/service.h"
#include "tools/serve/session.h"
#include "tools/serve/transport.h"
#include "tools/serve/workers.h"

namespace troupe::serve {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptPause{100};  // after a failure, such as no free file descriptor
constexpr std::chrono::seconds kLastWrites{3};          // for clients to take the end of what they were sent
constexpr std::size_t kMaxRefusals = 64;                // connections past the limit that are told so at a time

bool is_local(const tcp::socket& socket) {
  error_code gone;
  const asio::ip::address peer = socket.remote_endpoint(gone).address();
  if (peer.is_v6() && peer.to_v6().is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, peer.to_v6()).is_loopback();
  return peer.is_loopback();
}

}  // namespace

struct Server::Impl {
  Runtime& runtime;
  const ServeOptions options;
  asio::io_context io{1};
  std::shared_ptr<Service> service;
  std::optional<asio::ssl::context> tls;
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  Workers workers;
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io};
  std::uint16_t port = 0;
  std::map<std::uint64_t, std::shared_ptr<Session>> sessions;  // the I/O thread's
  std::uint64_t next_session = 1;
  bool stopping = false;       // the I/O thread's
  bool cannot_accept = false;  // the I/O thread's: since the last connection, and said so

  std::mutex mutex;
  std::condition_variable changed;
  std::size_t open = 0;  // sessions
  std::optional<bool> stopped;
  std::thread io_thread;

  Impl(Runtime& r, device::TextSide text, const ServeOptions& o)
      : runtime(r), options(o), service(std::make_shared<Service>(r, std::move(text), o)), workers(o.workers) {}

  Result<void> open_tls();
  Result<void> listen();
  void accept();
  void on_accept(error_code error, tcp::socket socket);
  std::shared_ptr<Session> add(tcp::socket socket);
  void on_io(std::function<void()> what);  // runs it on the I/O thread and waits
};

Result<void> Server::Impl::open_tls() {
  if (options.tls_certificate.empty() && options.tls_key.empty()) return success();
  tls.emplace(asio::ssl::context::tls_server);
  error_code error;
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, error);
  tls->use_certificate_chain_file(options.tls_certificate, error);
  if (error) return Error{ErrorCode::bad_file, fmt::format("{}: no usable certificate: {}", options.tls_certificate, error.message())};
  tls->use_private_key_file(options.tls_key, asio::ssl::context::pem, error);
  if (error) return Error{ErrorCode::bad_file, fmt::format("{}: no key that fits the certificate: {}", options.tls_key, error.message())};
  return success();
}

Result<void> Server::Impl::listen() {
  error_code error;
  const auto address = asio::ip::make_address(options.address, error);
  if (error) return Error{ErrorCode::bad_request, fmt::format("\"{}\" is no address to listen at; give an IP address", options.address)};
  const tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (error)
    return Error{ErrorCode::io_failed, fmt::format("cannot listen at {} port {}: {}", options.address, options.port, error.message())};
  port = acceptor.local_endpoint().port();
  return success();
}

void Server::Impl::accept() {
  acceptor.async_accept(io, [this](error_code error, tcp::socket socket) { on_accept(error, std::move(socket)); });
}

void Server::Impl::on_accept(error_code error, tcp::socket socket) {
  if (stopping || error == asio::error::operation_aborted) return;
  if (error) {
    if (!std::exchange(cannot_accept, true)) spdlog::warn("no further connection can be taken: {}", error.message());
    pause.expires_after(kAcceptPause);
    return pause.async_wait([this](error_code stopped) {
      if (!stopped && !stopping) accept();
    });
  }
  cannot_accept = false;
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (options.send_buffer > 0) socket.set_option(tcp::socket::send_buffer_size(options.send_buffer), ignored);
  const bool room = sessions.size() < options.max_connections;
  if (!room) service->metrics().refused_connection();
  if (room) {
    add(std::move(socket))->start();
  } else if (!tls && sessions.size() < options.max_connections + kMaxRefusals) {
    add(std::move(socket))
        ->refuse(
            {503, "server_error", fmt::format("all {} connections are taken; try again later", options.max_connections), "", "overloaded"});
  } else {
    socket.close(ignored);
  }
  accept();
}

std::shared_ptr<Session> Server::Impl::add(tcp::socket socket) {
  const std::uint64_t id = next_session++;
  const bool local = is_local(socket);
  auto transport = tls ? make_tls_transport(std::move(socket), *tls) : make_transport(std::move(socket));
  auto session = std::make_shared<Session>(io, workers, service, std::move(transport), local, [this, id] {
    sessions.erase(id);
    service->metrics().connection_closed();
    const std::lock_guard lock(mutex);
    --open;
    changed.notify_all();
  });
  sessions.emplace(id, session);
  service->metrics().connection_opened();
  const std::lock_guard lock(mutex);
  ++open;
  return session;
}

void Server::Impl::on_io(std::function<void()> what) {
  std::promise<void> done;
  asio::post(io, [&] {
    what();
    done.set_value();
  });
  done.get_future().wait();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { (void)stop(); }

Result<std::unique_ptr<Server>> Server::start(Runtime& runtime, device::TextSide text, const ServeOptions& options) {
  auto impl = std::make_unique<Impl>(runtime, std::move(text), options);
  TROUPE_TRY(impl->open_tls());
  TROUPE_TRY(impl->listen());
  impl->accept();
  impl->io_thread = std::thread([raw = impl.get()] {
    (void)pthread_setname_np(pthread_self(), "troupe.http");  // so that its cost can be told from the runtime's
    raw->io.run();
  });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

std::uint16_t Server::port() const { return impl_->port; }

bool Server::stop() {
  Impl& s = *impl_;
  if (s.stopped) return *s.stopped;
  s.service->begin_draining();
  s.on_io([&] {
    s.stopping = true;
    error_code ignored;
    s.acceptor.close(ignored);
    s.pause.cancel();
    const auto sessions = s.sessions;
    for (const auto& [id, session] : sessions) session->drain();
  });
  const bool drained = s.runtime.drain(s.options.drain_limit);
  s.workers.join();
  const auto ended = s.runtime.stop();
  if (!ended) spdlog::error("stop: {}", ended.error().what);
  {
    std::unique_lock lock(s.mutex);
    s.changed.wait_for(lock, kLastWrites, [&] { return s.open == 0; });
  }
  s.on_io([&] {
    const auto sessions = s.sessions;
    for (const auto& [id, session] : sessions) session->close();
  });
  s.work.reset();
  s.io_thread.join();
  s.stopped = drained;
  return drained;
}

}  // namespace troupe::serve
