// The smallest inspectors that the messages' inspect() must work with: a writer to bytes and a reader from them.
// result_type is true on failure, as in CAF 0.17.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace troupe::test {

struct Status {
  bool failed = false;
  explicit operator bool() const { return failed; }
};

class Writer {
 public:
  static constexpr bool reads_state = true;
  static constexpr bool writes_state = false;
  using result_type = Status;

  template <class... Ts>
  Status operator()(Ts&... xs) {
    (put(xs), ...);
    return {};
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <class T>
  void put(T& x) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      char raw[sizeof(T)];
      std::memcpy(raw, &x, sizeof(T));
      bytes_.append(raw, sizeof(T));
    } else {
      inspect(*this, x);
    }
  }
  void put(std::string& x) {
    auto n = static_cast<std::uint32_t>(x.size());
    put(n);
    bytes_ += x;
  }
  template <class T>
  void put(std::vector<T>& xs) {
    auto n = static_cast<std::uint32_t>(xs.size());
    put(n);
    for (T& x : xs) put(x);
  }
  std::string bytes_;
};

class Reader {
 public:
  static constexpr bool reads_state = false;
  static constexpr bool writes_state = true;
  using result_type = Status;

  explicit Reader(std::string bytes) : bytes_(std::move(bytes)) {}
  template <class... Ts>
  Status operator()(Ts&... xs) {
    Status status;
    (void)((status = get(xs), !status) && ...);
    return status;
  }
  std::size_t left() const { return bytes_.size() - at_; }

 private:
  template <class T>
  Status get(T& x) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t raw = 0;
      if (Status status = get(raw)) return status;
      x = raw != 0;
      return {};
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      if (left() < sizeof(T)) return {true};
      std::memcpy(&x, bytes_.data() + at_, sizeof(T));
      at_ += sizeof(T);
      return {};
    } else {
      return inspect(*this, x);
    }
  }
  Status get(std::string& x) {
    std::uint32_t n = 0;
    if (Status status = get(n)) return status;
    if (left() < n) return {true};
    x = bytes_.substr(at_, n);
    at_ += n;
    return {};
  }
  template <class T>
  Status get(std::vector<T>& xs) {
    std::uint32_t n = 0;
    if (Status status = get(n)) return status;
    if (left() < n) return {true};
    xs.clear();
    for (std::uint32_t i = 0; i < n; ++i) {
      if (Status status = get(xs.emplace_back())) return status;
    }
    return {};
  }
  std::string bytes_;
  std::size_t at_ = 0;
};

inline Status inspect_failed(Reader&) { return {true}; }

// How many fields a type's inspect() hands over, without looking into them.
class FieldCounter {
 public:
  static constexpr bool reads_state = true;
  static constexpr bool writes_state = false;
  using result_type = Status;
  template <class... Ts>
  Status operator()(Ts&...) {
    count += sizeof...(Ts);
    return {};
  }
  std::size_t count = 0;
};

}  // namespace troupe::test
