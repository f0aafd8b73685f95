// Feeds a stream of requests to a Runtime at their times, and gives each one's outcome back: the work of `troupe run`
// and of each pass of `troupe verify`.
//
// Invariants
//   - Every request that was added gives exactly one outcome, whatever becomes of it.
//   - Two live requests with the same id share a client number, so that the runtime refuses the second.
//   - What the runtime answers with `overloaded` is submitted again, in its order, when something has ended.
//
// Threads: add(), close() and abort() by any; run() by one, which also gets the calls of `on_done`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/runtime.h"
#include "tools/troupe/jsonl.h"
#include "tools/troupe/outcome.h"

namespace troupe::tools {

class Runner {
 public:
  // The ids of a request's prompt: the tokenizer and the chat format are the caller's.
  using Tokenize = std::function<Result<std::vector<Token>>(const RequestLine&)>;
  // False: the outcome cannot be used any more (the output was closed); as abort().
  using OnDone = std::function<bool(RequestOutcome)>;

  // At most this many requests wait here to be submitted: add() blocks beyond it.
  static constexpr std::size_t kMaxQueued = 4096;

  Runner(Runtime& runtime, Tokenize tokenize, OnDone on_done);
  ~Runner();

  void add(RequestLine line);
  void add(LineError error);
  void close();  // no more will be added
  void abort();  // cancels what runs and drops what waits; their outcomes are not reported

  // Returns once close() or abort() was called and everything has ended.
  void run();

  std::uint64_t tokens() const;  // received so far

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::tools
