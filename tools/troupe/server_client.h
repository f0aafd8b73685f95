// One question to a running `troupe serve`, for the commands that look after one. Plain HTTP; waits for the answer.
#pragma once

#include <boost/beast/http/verb.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>

#include <chrono>
#include <string>
#include <string_view>

#include "messages/error.h"

namespace troupe::tools {

struct ServerAddress {
  std::string host, port;
  std::string key;  // of its API; empty: none is sent
  std::chrono::seconds patience{300};
};

struct ServerReply {
  unsigned status = 0;
  std::string body;
};

// --server, --api-key-file and --patience.
void add_server_options(boost::program_options::options_description& own);
// What they say. "http://127.0.0.1:8080"; a bare HOST:PORT too. bad_request, unsupported (https), bad_file (the key).
Result<ServerAddress> server_address(const boost::program_options::variables_map& values);

// `body`: JSON, or empty. io_failed: the server can't be reached, or says nothing for as long as `at.patience`.
Result<ServerReply> ask(const ServerAddress& at, boost::beast::http::verb verb, std::string_view target, const std::string& body = "");
// What the server said is wrong, in OpenAI's shape or any other.
std::string complaint(const ServerReply& reply);

}  // namespace troupe::tools
