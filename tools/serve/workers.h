// Threads that parse, tokenize and submit. Large bodies, of which one may take seconds to tokenize, have a thread to
// themselves, so that whoever sends them waits for his like only.
// Any thread.
#pragma once

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace troupe::serve {

class Workers {
 public:
  static constexpr std::size_t kLarge = 64 << 10;  // bytes of a body

  explicit Workers(std::uint32_t threads) : small_(threads), large_(1) {}

  template <class F>
  void post(std::size_t body_size, F&& work) {
    boost::asio::post(body_size >= kLarge ? large_ : small_, std::forward<F>(work));
  }
  // Ends what was posted.
  void join() {
    small_.join();
    large_.join();
  }

 private:
  boost::asio::thread_pool small_, large_;
};

}  // namespace troupe::serve
