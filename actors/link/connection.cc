#include <fmt/format.h>
#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/write.hpp>

#include "actors/link/transport_state.h"

namespace troupe::actors::link {
namespace {

constexpr std::chrono::seconds kFlush{1};

Error failed(const char* what, const error_code& error) { return {ErrorCode::io_failed, fmt::format("{}: {}", what, error.message())}; }

}  // namespace

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

}  // namespace troupe::actors::link
