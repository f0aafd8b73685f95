// A connection's bytes, in the clear or by TLS. One operation of a kind at a time; all on the I/O thread.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

namespace troupe::serve {

class Transport {
 public:
  // ok false: the peer went away, or the connection was closed. Called later, never by the function that it is given to.
  using Done = std::function<void(bool ok, std::size_t bytes)>;

  virtual ~Transport() = default;
  virtual void handshake(Done done) = 0;
  virtual void read_some(char* to, std::size_t size, Done done) = 0;
  virtual void write(std::string_view bytes, Done done) = 0;  // all of it; the bytes stay until done
  virtual void end_sending() = 0;                             // the peer sees the end of what was written
  virtual void close() = 0;                                   // operations that run end with ok = false
};

std::unique_ptr<Transport> make_transport(boost::asio::ip::tcp::socket socket);
std::unique_ptr<Transport> make_tls_transport(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context& context);

}  // namespace troupe::serve
