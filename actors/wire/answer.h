// An answer that somebody waits for. CAF 0.17 loses a promise that is dropped without a word; this one then answers
// with an error that the edge reads as `closed`. Belongs to the actor that was asked, and dies in its context (the
// actor's on_exit() at the latest).
#pragma once

#include <utility>

#include "actors/wire/inspect.h"

namespace troupe::actors {

template <class T>
class Answer {
 public:
  explicit Answer(caf::typed_response_promise<T> promise) : promise_(std::move(promise)) {}
  Answer(Answer&& o) noexcept : promise_(std::exchange(o.promise_, {})) {}
  Answer& operator=(Answer&& o) noexcept {
    if (this != &o) {
      close();
      promise_ = std::exchange(o.promise_, {});
    }
    return *this;
  }
  ~Answer() { close(); }

  // Once; later calls do nothing.
  void give(T value) {
    if (promise_.pending()) promise_.deliver(std::move(value));
    promise_ = {};
  }

 private:
  void close() noexcept {
    if (promise_.pending()) promise_.deliver(caf::make_error(caf::sec::request_receiver_down));
    promise_ = {};
  }
  caf::typed_response_promise<T> promise_;
};

}  // namespace troupe::actors
