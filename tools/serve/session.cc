#include "tools/serve/session.h"

#include <boost/asio/post.hpp>

#include <utility>

namespace troupe::serve {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kLinger{1000};      // for a client to read an error before the connection is cut
constexpr std::chrono::milliseconds kAnswerTime{2000};  // for the runtime to say how it is
constexpr std::size_t kRecordingPiece = 256 << 10;      // bytes of a recording that are read and written at a time

}  // namespace

Session::Session(asio::io_context& io, Workers& workers, std::shared_ptr<Service> service, std::unique_ptr<Transport> transport, bool local,
                 std::function<void()> closed)
    : io_(io),
      workers_(workers),
      service_(std::move(service)),
      transport_(std::move(transport)),
      local_(local),
      closed_(std::move(closed)),
      timer_(io),
      reader_(service_->options().max_header, service_->options().max_body) {}

void Session::start() {
  arm(service_->options().header_timeout, &Session::close);
  transport_->handshake([self = shared_from_this()](bool ok, std::size_t) {
    if (!ok || self->state_ != State::starting) return self->close();
    self->state_ = State::reading;
    self->read();
  });
}

void Session::refuse(const ApiError& error) {
  request_.keep_alive = false;
  state_ = State::working;
  reply(to_reply(error));
  read();
}

void Session::drain() {
  draining_ = true;
  if (state_ == State::starting || (state_ == State::reading && !request_begun_)) close();
}

void Session::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  give_up_call();
  recording_.reset();
  disarm();
  timer_.cancel();
  transport_->close();
  asio::post(io_, [closed = std::exchange(closed_, {})] { closed(); });
}

void Session::arm(std::chrono::milliseconds limit, void (Session::*expired)()) {
  timer_.expires_after(limit);
  timer_.async_wait([weak = weak_from_this(), mine = ++armed_, expired](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (self && !error && mine == self->armed_ && self->state_ != State::closed) (self.get()->*expired)();
  });
}

void Session::too_late() {
  request_ = {};
  request_.keep_alive = false;
  state_ = State::working;
  reply(to_reply(ApiError{408, "invalid_request_error", "the request did not come in time", "", "timeout"}));
}

void Session::not_reading() { close(); }
void Session::stuck() { on_figures(exchange_, endpoint_, std::nullopt); }

void Session::read() {
  if (reading_ || ended_ || state_ == State::closed) return;
  const std::span<char> room = reader_.room();
  if (room.empty()) return;
  reading_ = true;
  transport_->read_some(room.data(), room.size(), [self = shared_from_this()](bool ok, std::size_t n) { self->on_read(ok, n); });
}

void Session::on_read(bool ok, std::size_t n) {
  reading_ = false;
  if (state_ == State::closed) return;
  if (!ok) {
    ended_ = true;
    // A client that has closed its side may still wait for a short answer, but not for a generated one.
    if (state_ != State::working) close();
    return;
  }
  reader_.arrived(n);
  if (state_ == State::reading) advance();
  if (state_ == State::closing) reader_.discard();
  read();
}

void Session::advance() {
  const auto status = reader_.parse();
  if (!status) {
    request_ = {};
    request_.keep_alive = false;
    state_ = State::working;
    disarm();
    return reply(to_reply(status.error()));
  }
  const ServeOptions& limits = service_->options();
  switch (status.value()) {
    case RequestReader::Status::nothing:
      break;
    case RequestReader::Status::header:
      if (!request_begun_) arm(limits.header_timeout, &Session::too_late);
      request_begun_ = true;
      break;
    case RequestReader::Status::body:
      if (!body_begun_) arm(limits.body_timeout, &Session::too_late);
      request_begun_ = body_begun_ = true;
      if (reader_.wants_continue()) write("HTTP/1.1 100 Continue\r\n\r\n");
      break;
    case RequestReader::Status::whole:
      disarm();
      request_begun_ = body_begun_ = false;
      serve(reader_.take());
      break;
  }
}

void Session::serve(HttpRequest request) {
  request_ = std::move(request);
  if (draining_ || service_->draining()) request_.keep_alive = false;
  state_ = State::working;
  ++exchange_;
  complete_ = head_written_ = stream_ = false;
  auto routed = route(request_);
  if (!routed) return reply(to_reply(routed.error()));
  const auto allowed = authorize(request_, routed.value().access, service_->options().api_keys, local_);
  if (!allowed) return reply(to_reply(allowed.error()));
  endpoint_ = routed.value().endpoint;
  switch (endpoint_) {
    case Endpoint::health:
    case Endpoint::metrics:
    case Endpoint::debug_state:
    case Endpoint::replicas:
      return serve_figures(endpoint_);
    case Endpoint::debug_trace:
      return serve_recording();
    case Endpoint::models:
      return reply_body(service_->models());
    case Endpoint::model:
      return reply_body(service_->model(routed.value().argument));
    case Endpoint::tokenize:
    case Endpoint::detokenize:
      return serve_text(endpoint_, std::move(request_.body));
    case Endpoint::drain_replica:
    case Endpoint::undrain_replica:
      return change_replica(endpoint_, std::move(request_.body));
    case Endpoint::load_lora:
    case Endpoint::unload_lora:
      return change_lora(endpoint_, std::move(request_.body));
    case Endpoint::completions:
      return generate(Api::completions, std::move(request_.body));
    case Endpoint::chat:
      return generate(Api::chat, std::move(request_.body));
  }
}

void Session::serve_figures(Endpoint endpoint) {
  arm(kAnswerTime, &Session::stuck);
  service_->watch().ask([weak = weak_from_this(), &io = io_, exchange = exchange_, endpoint](const RuntimeMetrics& figures) {
    asio::post(io, [weak, exchange, endpoint, figures] {
      if (const auto self = weak.lock()) self->on_figures(exchange, endpoint, figures);
    });
  });
}

void Session::on_figures(std::uint64_t exchange, Endpoint endpoint, const std::optional<RuntimeMetrics>& figures) {
  if (state_ != State::working || exchange != exchange_ || complete_) return;
  disarm();
  switch (endpoint) {
    case Endpoint::metrics:
      return reply(service_->exposition(figures));
    case Endpoint::debug_state:
      return reply(service_->state(figures));
    case Endpoint::replicas:
      return reply(service_->replicas(figures));
    default:
      return reply(service_->health(figures));
  }
}

void Session::serve_recording() {
  constexpr std::string_view kPart = "part=";
  const std::string part = request_.query.starts_with(kPart) ? request_.query.substr(kPart.size()) : "";
  service_->flight().dump(part,
                          [weak = weak_from_this(), &io = io_, exchange = exchange_](ApiResult<std::shared_ptr<Recording>> recording) {
                            asio::post(io, [weak, exchange, recording = std::move(recording)]() mutable {
                              if (const auto self = weak.lock()) self->on_recording(exchange, std::move(recording));
                            });
                          });
}

void Session::on_recording(std::uint64_t exchange, ApiResult<std::shared_ptr<Recording>> recording) {
  if (state_ != State::working || exchange != exchange_ || complete_) return;
  if (!recording) return reply(to_reply(recording.error()));
  HttpReply head;
  head.content_type = "application/octet-stream";
  head.length = recording.value()->size();
  head.headers.emplace_back("Content-Disposition", "attachment; filename=\"troupe-flight.trace\"");
  if (request_.method == "HEAD") return reply(head);
  recording_ = std::move(recording).value();
  status_ = head.status;
  if (draining_) request_.keep_alive = false;
  write(head_of(head, request_.keep_alive));
}

// The next piece; the last one completes the answer. A client sees a recording that cannot be read on as one that is cut off.
void Session::send_recording() {
  auto bytes = recording_->next(kRecordingPiece);
  if (!bytes) return close();
  complete_ = recording_->at_end();
  if (complete_) recording_.reset();
  write(std::move(bytes).value());
}

void Session::serve_text(Endpoint endpoint, std::string body) {
  const std::size_t size = body.size();
  workers_.post(size, [self = shared_from_this(), endpoint, body = std::move(body)] {
    auto result = endpoint == Endpoint::tokenize ? self->service_->tokenize(body) : self->service_->detokenize(body);
    asio::post(self->io_, [self, result = std::move(result)] { self->reply_body(result); });
  });
}

void Session::change_replica(Endpoint endpoint, std::string body) {
  const std::size_t size = body.size();
  workers_.post(size, [self = shared_from_this(), endpoint, body = std::move(body)] {
    auto result = self->service_->change_replica(body, endpoint == Endpoint::drain_replica);
    asio::post(self->io_, [self, result = std::move(result)] { self->reply_body(result); });
  });
}

void Session::change_lora(Endpoint endpoint, std::string body) {
  const std::size_t size = body.size();
  workers_.post(size, [self = shared_from_this(), endpoint, body = std::move(body)] {
    // The runtime may answer at its end, when the I/O thread is gone: nothing of the session is held there.
    const auto done = [weak = self->weak_from_this(), &io = self->io_](const ApiResult<std::string>& result) {
      asio::post(io, [weak, result] {
        if (const auto session = weak.lock()) session->reply_body(result);
      });
    };
    endpoint == Endpoint::load_lora ? self->service_->load_lora(body, done) : self->service_->unload_lora(body, done);
  });
}

void Session::generate(Api api, std::string body) {
  state_ = State::answering;
  if (ended_) return close();
  const auto wake = [weak = weak_from_this(), &io = io_] {
    asio::post(io, [weak] {
      if (const auto self = weak.lock()) self->pump();
    });
  };
  const std::size_t size = body.size();
  workers_.post(size, [self = shared_from_this(), api, body = std::move(body), wake] {
    auto started = std::make_shared<ApiResult<Service::Started>>(self->service_->start(api, body, wake));
    asio::post(self->io_, [self, started] { self->on_started(std::move(*started)); });
  });
}

void Session::on_started(ApiResult<Service::Started> started) {
  if (state_ == State::closed) {
    if (started) service_->abandon(started.value().call);
    return;
  }
  if (!started) {
    state_ = State::working;
    return reply(to_reply(started.error()));
  }
  call_ = std::move(started.value().call);
  render_ = std::move(started.value().render);
  stream_ = started.value().stream;
  pump();
}

void Session::pump() {
  if (!call_ || state_ != State::answering) return;
  if (call_->overflowed()) return close();
  if (writing_ || complete_) return;
  const std::vector<Piece> pieces = call_->take();
  std::string out;
  if (auto added = render_->add(pieces, out); !added) return fail(added.error(), out);
  if (!stream_) {
    if (!render_->ended()) return;
    call_.reset();
    HttpReply whole;
    whole.body = render_->body();
    return reply(whole);
  }
  complete_ = render_->ended();
  if (out.empty()) return;
  const bool chunked = request_.chunked_is_known;
  std::string bytes;
  if (!head_written_) bytes = stream_head(request_.keep_alive = request_.keep_alive && chunked, chunked);
  head_written_ = true;
  bytes += chunked ? chunk(out) : out;
  if (complete_) {
    if (chunked) bytes += chunk("");
    call_.reset();
  }
  write(std::move(bytes));
}

// `out`: the events in front of the failure.
void Session::fail(const ApiError& error, std::string& out) {
  give_up_call();
  if (!head_written_) return reply(to_reply(error));
  status_ = error.status;
  complete_ = true;
  out += sse_error(error);
  write(request_.chunked_is_known ? chunk(out) + chunk("") : out);
}

void Session::reply_body(ApiResult<std::string> body) {
  if (state_ != State::working || complete_) return;
  if (!body) return reply(to_reply(body.error()));
  HttpReply out;
  out.body = std::move(body).value();
  reply(out);
}

void Session::reply(const HttpReply& reply) {
  status_ = reply.status;
  complete_ = true;
  if (draining_) request_.keep_alive = false;
  const bool head_only = request_.method == "HEAD";
  write(head_of(reply, request_.keep_alive) + (head_only ? "" : reply.body));
}

void Session::write(std::string bytes) {
  next_ += bytes;
  if (writing_ || state_ == State::closed) return;
  out_ = std::exchange(next_, {});
  writing_ = true;
  if (state_ != State::reading) arm(service_->options().write_timeout, &Session::not_reading);
  transport_->write(out_, [self = shared_from_this()](bool ok, std::size_t) { self->on_written(ok); });
}

void Session::on_written(bool ok) {
  writing_ = false;
  if (state_ == State::closed) return;
  if (!ok) return close();
  if (!next_.empty()) return write({});
  if (state_ == State::reading) return;  // 100 Continue
  disarm();
  if (complete_) return finish();
  if (recording_) return send_recording();
  pump();
}

void Session::finish() {
  service_->metrics().http_reply(status_);
  call_.reset();
  render_.reset();
  if (!request_.keep_alive || ended_ || draining_) return linger();
  state_ = State::reading;
  arm(service_->options().idle_timeout, &Session::close);
  // Not from here: a client that sent many requests ahead would otherwise be served in one go, and deep in the stack.
  asio::post(io_, [self = shared_from_this()] {
    if (self->state_ != State::reading) return;
    self->advance();
    self->read();
  });
}

void Session::linger() {
  state_ = State::closing;
  transport_->end_sending();
  if (ended_) return close();
  reader_.discard();
  arm(kLinger, &Session::close);
  read();
}

void Session::give_up_call() {
  if (call_) service_->abandon(call_);
  call_.reset();
}

}  // namespace troupe::serve
