#include "tools/serve/transport.h"

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

#include <utility>

namespace troupe::serve {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(tcp::socket socket) : socket_(std::move(socket)) {}
  void handshake(Done done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done(true, 0); });
  }
  void read_some(char* to, std::size_t size, Done done) override {
    socket_.async_read_some(asio::buffer(to, size), [done = std::move(done)](error_code error, std::size_t n) { done(!error, n); });
  }
  void write(std::string_view bytes, Done done) override {
    asio::async_write(socket_, asio::buffer(bytes.data(), bytes.size()),
                      [done = std::move(done)](error_code error, std::size_t n) { done(!error, n); });
  }
  void end_sending() override {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  tcp::socket socket_;
};

// The stream outlives the transport while an operation on it runs.
class TlsTransport final : public Transport {
 public:
  TlsTransport(tcp::socket socket, asio::ssl::context& context) : stream_(std::make_shared<Stream>(std::move(socket), context)) {}
  void handshake(Done done) override {
    stream_->async_handshake(asio::ssl::stream_base::server,
                             [keep = stream_, done = std::move(done)](error_code error) { done(!error, 0); });
  }
  void read_some(char* to, std::size_t size, Done done) override {
    stream_->async_read_some(asio::buffer(to, size),
                             [keep = stream_, done = std::move(done)](error_code error, std::size_t n) { done(!error, n); });
  }
  void write(std::string_view bytes, Done done) override {
    asio::async_write(*stream_, asio::buffer(bytes.data(), bytes.size()),
                      [keep = stream_, done = std::move(done)](error_code error, std::size_t n) { done(!error, n); });
  }
  void end_sending() override {
    stream_->async_shutdown([keep = stream_](error_code) {
      error_code ignored;
      keep->next_layer().shutdown(tcp::socket::shutdown_send, ignored);
    });
  }
  void close() override {
    error_code ignored;
    stream_->next_layer().close(ignored);
  }

 private:
  using Stream = asio::ssl::stream<tcp::socket>;
  std::shared_ptr<Stream> stream_;
};

}  // namespace

std::unique_ptr<Transport> make_transport(tcp::socket socket) { return std::make_unique<TcpTransport>(std::move(socket)); }

std::unique_ptr<Transport> make_tls_transport(tcp::socket socket, asio::ssl::context& context) {
  return std::make_unique<TlsTransport>(std::move(socket), context);
}

}  // namespace troupe::serve
