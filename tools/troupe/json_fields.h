// Reading a request's fields from JSON: types and ranges of integers, and the fields that every kind of request has (a
// line of `troupe run`, a body of `troupe serve`). What a value may be is the runtime's to say (actors/dispatcher).
//
// Every error is bad_request and names the place: `file:line: field "x": ...`, or `field "x": ...` without one.
// Pure functions: any thread.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "messages/error.h"
#include "messages/request.h"

namespace troupe::tools {

// "an integer", as errors call a value.
const char* kind_name(const boost::json::value& v);

// Where a value stands; turns into the beginning of an error.
struct Field {
  const std::string& place;
  std::string name;

  Error error(const std::string& what) const;
  Error wrong(const char* wanted, const boost::json::value& v) const;
  Field at(std::size_t i) const;
  Field at(std::string_view key) const;
};

Result<std::uint64_t> to_uint(const boost::json::value& v, const Field& field,
                              std::uint64_t max = std::numeric_limits<std::uint32_t>::max());
Result<std::uint32_t> to_u32(const boost::json::value& v, const Field& field);
Result<float> to_float(const boost::json::value& v, const Field& field);
Result<bool> to_bool(const boost::json::value& v, const Field& field);
Result<std::string> to_string(const boost::json::value& v, const Field& field);
Result<std::vector<Token>> to_ids(const boost::json::value& v, const Field& field);
Result<std::vector<std::string>> to_strings(const boost::json::value& v, const Field& field);  // or one string

// False: no field of that name.
Result<bool> read_sampling(std::string_view key, const boost::json::value& v, const Field& field, SamplingParams& out);
Result<bool> read_stop(std::string_view key, const boost::json::value& v, const Field& field, Request& out);  // and `think`

// The whole text is one value. Error: names the byte.
Result<boost::json::value> parse_json(std::string_view text, const std::string& place);

}  // namespace troupe::tools
