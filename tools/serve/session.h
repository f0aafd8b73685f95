// One client's connection: reads requests, one after another, and answers each before it takes the next (a client may
// send ahead). A small state machine; everything in it runs on the I/O thread and returns at once.
//
// Invariants
//   - While anything is awaited a read is outstanding, so that a client that leaves is noticed at once; its requests are
//     cancelled then, before anything else.
//   - Each wait on the client has a deadline: first byte, headers, body, taking what is written, closing.
//   - At most one write runs, and a streamed answer is taken from its Call only when that write is done: what a slow
//     client makes wait is in the Call, which is bounded.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tools/serve/request_reader.h"
#include "tools/serve/service.h"
#include "tools/serve/transport.h"
#include "tools/serve/workers.h"

namespace troupe::serve {

class Session : public std::enable_shared_from_this<Session> {
 public:
  // `closed` is called once, when nothing of the session runs on any more.
  // `local`: the client is on this machine.
  Session(boost::asio::io_context& io, Workers& workers, std::shared_ptr<Service> service, std::unique_ptr<Transport> transport, bool local,
          std::function<void()> closed);

  void start();
  // Instead of start(): says this and closes.
  void refuse(const ApiError& error);
  // No further request is taken; an idle connection closes.
  void drain();
  void close();

 private:
  enum class State { starting, reading, working, answering, closing, closed };

  void arm(std::chrono::milliseconds limit, void (Session::*expired)());
  void disarm() { ++armed_; }
  void too_late();     // a request did not come in time
  void stuck();        // the runtime did not answer
  void not_reading();  // the client does not take what is written

  void read();
  void on_read(bool ok, std::size_t n);
  void advance();  // reading: takes in what has arrived
  void serve(HttpRequest request);
  void serve_figures(Endpoint endpoint);
  void serve_text(Endpoint endpoint, std::string body);
  void change_replica(Endpoint endpoint, std::string body);
  void change_lora(Endpoint endpoint, std::string body);
  void serve_recording();
  void generate(Api api, std::string body);
  void on_figures(std::uint64_t exchange, Endpoint endpoint, const std::optional<RuntimeMetrics>& figures);
  void on_recording(std::uint64_t exchange, ApiResult<std::shared_ptr<Recording>> recording);
  void on_started(ApiResult<Service::Started> started);
  void pump();  // answering: writes what has come
  void send_recording();
  void fail(const ApiError& error, std::string& out);

  void reply(const HttpReply& reply);
  void reply_body(ApiResult<std::string> body);
  void write(std::string bytes);
  void on_written(bool ok);
  void finish();  // the answer is written
  void linger();
  void give_up_call();

  boost::asio::io_context& io_;
  Workers& workers_;
  const std::shared_ptr<Service> service_;
  const std::unique_ptr<Transport> transport_;
  const bool local_;
  std::function<void()> closed_;
  boost::asio::steady_timer timer_;
  std::uint64_t armed_ = 0;  // which deadline is in force
  RequestReader reader_;
  State state_ = State::starting;
  std::uint64_t exchange_ = 0;  // counts requests: late answers to an earlier one are dropped
  bool reading_ = false;        // a read is outstanding
  bool ended_ = false;          // the client sends no more
  bool draining_ = false;
  bool request_begun_ = false;
  bool body_begun_ = false;

  // The request that is answered.
  HttpRequest request_;
  Endpoint endpoint_ = Endpoint::health;
  int status_ = 200;
  std::shared_ptr<Call> call_;
  std::unique_ptr<Render> render_;
  std::shared_ptr<Recording> recording_;
  bool stream_ = false;
  bool head_written_ = false;
  bool complete_ = false;  // all of it has been given to write()

  std::string out_;   // that is being written
  std::string next_;  // that is written then
  bool writing_ = false;
};

}  // namespace troupe::serve
