// The transport's own: a connection and the thread of all. Included by its .cc files only.
#pragma once

#include <openssl/ssl.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <atomic>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "actors/link/transport.h"

namespace troupe::actors::link {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

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
  void run();
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

}  // namespace troupe::actors::link
