#include "device/models/json_fields.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <optional>
#include <system_error>

namespace troupe::device {

namespace json = boost::json;

namespace {

constexpr std::size_t kShown = 80;

std::optional<std::uint64_t> whole(const json::value& v) {
  if (v.is_uint64()) return v.get_uint64();
  if (v.is_int64() && v.get_int64() >= 0) return static_cast<std::uint64_t>(v.get_int64());
  return std::nullopt;
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, std::size_t most) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) {
    const int e = errno;
    return Error{e == ENOENT || e == ENOTDIR ? ErrorCode::not_found : ErrorCode::io_failed,
                 fmt::format("{}: cannot be read: {}", path, std::system_category().message(e))};
  }
  if (!S_ISREG(st.st_mode)) return Error{ErrorCode::io_failed, path + ": is not a regular file"};
  const auto size = static_cast<std::uint64_t>(st.st_size);
  if (size > most) return Error{ErrorCode::bad_file, fmt::format("{}: has {} bytes; at most {} are expected", path, size, most)};
  std::string text(size, '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in || (size > 0 && !in.read(text.data(), static_cast<std::streamsize>(size)))) {
    return Error{ErrorCode::io_failed, path + ": cannot be read"};
  }
  return text;
}

Result<json::value> parse_json(std::string_view text, const std::string& file) {
  json::stream_parser parser;
  json::error_code error;
  const std::size_t read = parser.write_some(text.data(), text.size(), error);
  if (!error && read < text.size()) error = json::error::extra_data;
  if (!error) parser.finish(error);
  if (error) return Error{ErrorCode::bad_file, fmt::format("{}: byte {}: JSON is expected: {}", file, read, error.message())};
  return parser.release();
}

std::string shown_json(const json::value& value) {
  // The serializer stops when its buffer is full, however large the value is.
  json::serializer s;
  s.reset(&value);
  char buffer[kShown];
  std::string out(s.read(buffer, sizeof buffer));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return s.done() ? out : out + "...";
}

Result<JsonFields> JsonFields::of(const json::value& value, const std::string& where) {
  if (!value.is_object()) return Error{ErrorCode::bad_file, fmt::format("{}: an object is expected, found {}", where, shown_json(value))};
  return JsonFields(value.get_object(), where);
}

const json::value* JsonFields::find(std::string_view key) const {
  const json::value* v = object_.if_contains(json::string_view(key.data(), key.size()));
  return v != nullptr && !v->is_null() ? v : nullptr;
}

Error JsonFields::bad(std::string_view key, const std::string& expected) const {
  const json::value* v = find(key);
  if (v == nullptr) return {ErrorCode::not_found, fmt::format("{}: field '{}' is missing; {} is expected", where_, key, expected)};
  return {ErrorCode::bad_file, fmt::format("{}: field '{}' is {}; {} is expected", where_, key, shown_json(*v), expected)};
}

Result<const json::value*> JsonFields::want(std::string_view key, const char* expected) const {
  const json::value* v = find(key);
  if (v == nullptr) return bad(key, expected);
  return v;
}

Result<std::uint32_t> JsonFields::count(std::string_view key, std::uint32_t least, std::uint32_t most) const {
  const json::value* v = find(key);
  const auto n = v != nullptr ? whole(*v) : std::nullopt;
  if (!n || *n < least || *n > most) return bad(key, fmt::format("a whole number from {} to {}", least, most));
  return static_cast<std::uint32_t>(*n);
}

Result<std::uint32_t> JsonFields::count_or(std::string_view key, std::uint32_t least, std::uint32_t most, std::uint32_t otherwise) const {
  if (!has(key)) return otherwise;
  return count(key, least, most);
}

Result<double> JsonFields::number(std::string_view key) const {
  TROUPE_TRY(auto v, want(key, "a number"));
  double x = 0.0;
  if (v->is_double()) {
    x = v->get_double();
  } else if (v->is_int64()) {
    x = static_cast<double>(v->get_int64());
  } else if (v->is_uint64()) {
    x = static_cast<double>(v->get_uint64());
  } else {
    return bad(key, "a number");
  }
  if (!std::isfinite(x)) return bad(key, "a finite number");
  return x;
}

Result<double> JsonFields::number_or(std::string_view key, double otherwise) const {
  if (!has(key)) return otherwise;
  return number(key);
}

Result<std::string_view> JsonFields::string(std::string_view key) const {
  TROUPE_TRY(auto v, want(key, "a string"));
  if (!v->is_string()) return bad(key, "a string");
  return std::string_view(v->get_string().data(), v->get_string().size());
}

Result<std::string_view> JsonFields::string_or(std::string_view key, std::string_view otherwise) const {
  if (!has(key)) return otherwise;
  return string(key);
}

Result<bool> JsonFields::boolean_or(std::string_view key, bool otherwise) const {
  const json::value* v = find(key);
  if (v == nullptr) return otherwise;
  if (!v->is_bool()) return bad(key, "true or false");
  return v->get_bool();
}

Result<JsonFields> JsonFields::object(std::string_view key) const {
  TROUPE_TRY(auto v, want(key, "an object"));
  if (!v->is_object()) return bad(key, "an object");
  return JsonFields(v->get_object(), fmt::format("{}: '{}'", where_, key));
}

}  // namespace troupe::device
