// Reads the JSON files of a model's folder, and their fields, with errors that name the file, the field and what was
// expected. Values only: any thread.
#pragma once

#include <boost/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "messages/error.h"

namespace troupe::device {

// The bytes of a file. not_found: there is none; io_failed: it cannot be read; bad_file: it has more than `most` bytes.
Result<std::string> read_text_file(const std::string& path, std::size_t most);

// bad_file: not JSON, or nested deeper than 32 levels: names the byte. Memory is bounded by a small multiple of `text`.
Result<boost::json::value> parse_json(std::string_view text, const std::string& file);

// How an error speaks of a value: the start of it as JSON.
std::string shown_json(const boost::json::value& value);

// The fields of one object, which must outlive this. `where` begins every error: a file, or a file and an object in it.
// A field that is null counts as missing. Missing: not_found; of another type, or out of its range: bad_file.
class JsonFields {
 public:
  JsonFields(const boost::json::object& object, std::string where) : object_(object), where_(std::move(where)) {}
  // bad_file: `value` is no object.
  static Result<JsonFields> of(const boost::json::value& value, const std::string& where);

  const std::string& where() const { return where_; }
  const boost::json::value* find(std::string_view key) const;  // null: missing
  bool has(std::string_view key) const { return find(key) != nullptr; }

  Result<std::uint32_t> count(std::string_view key, std::uint32_t least, std::uint32_t most) const;
  Result<std::uint32_t> count_or(std::string_view key, std::uint32_t least, std::uint32_t most, std::uint32_t otherwise) const;
  Result<double> number(std::string_view key) const;  // finite
  Result<double> number_or(std::string_view key, double otherwise) const;
  Result<std::string_view> string(std::string_view key) const;
  Result<std::string_view> string_or(std::string_view key, std::string_view otherwise) const;
  Result<bool> boolean_or(std::string_view key, bool otherwise) const;
  Result<JsonFields> object(std::string_view key) const;

  Error bad(std::string_view key, const std::string& expected) const;  // "... field 'key' is ...; ... is expected"

 private:
  Result<const boost::json::value*> want(std::string_view key, const char* expected) const;

  const boost::json::object& object_;
  std::string where_;
};

}  // namespace troupe::device
