// How `troupe serve` serves, and its limits. Each queue and wait has one (R11).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::serve {

struct ServeOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 8080;             // 0: any that is free
  std::string model_name;                // what clients call the model
  std::vector<std::string> api_keys;     // empty: everybody may
  std::string tls_certificate, tls_key;  // PEM files; empty: no TLS

  std::size_t max_header = 16 << 10;
  std::size_t max_body = 4 << 20;
  std::uint32_t max_connections = 1024;
  std::chrono::milliseconds header_timeout{10'000};  // from a request's first byte to the end of its headers; of a new connection too
  std::chrono::milliseconds body_timeout{60'000};    // and from there to the end of its body
  std::chrono::milliseconds idle_timeout{75'000};    // between two requests
  std::chrono::milliseconds write_timeout{30'000};   // for a client to take what is written
  std::chrono::milliseconds request_timeout{0};      // of a request's whole life; 0: none
  std::size_t stream_buffer = 256 << 10;             // bytes of a streamed answer that may wait for its client
  int send_buffer = 0;                               // bytes of the socket's own buffer; 0: the kernel decides

  std::chrono::milliseconds stall_after{30'000};  // work waits and nothing settles for so long: not healthy (R10)
  std::chrono::milliseconds drain_limit{30'000};  // how long SIGTERM waits for what runs
  std::uint32_t workers = 2;                      // threads that parse, tokenize and submit
};

}  // namespace troupe::serve
