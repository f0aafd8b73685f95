// Writes small GGUF files into memory, right or wrong, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::device {

class Bytes {
 public:
  template <class T>
  Bytes& put(T value) {
    const auto at = data_.size();
    data_.resize(at + sizeof value);
    std::memcpy(data_.data() + at, &value, sizeof value);
    return *this;
  }
  Bytes& u32(std::uint32_t v) { return put(v); }
  Bytes& u64(std::uint64_t v) { return put(v); }
  Bytes& text(std::string_view s) {
    u64(s.size());
    for (char c : s) put(c);
    return *this;
  }
  Bytes& add(const Bytes& other) {
    data_.insert(data_.end(), other.data_.begin(), other.data_.end());
    return *this;
  }
  Bytes& fill(std::size_t n, unsigned char value = 0) {
    data_.insert(data_.end(), n, static_cast<std::byte>(value));
    return *this;
  }
  Bytes& align(std::size_t n) { return fill((n - data_.size() % n) % n); }
  std::size_t size() const { return data_.size(); }
  std::span<const std::byte> span() const { return data_; }

 private:
  std::vector<std::byte> data_;
};

// Value types of the format.
enum GgufValueType : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

// Collects keys and tensors, then writes header, keys, descriptions and data. The counts and every field can be wrong.
class GgufBuilder {
 public:
  template <class T>
  GgufBuilder& key(std::string_view name, std::uint32_t type, T value) {
    keys_.text(name).u32(type).put(value);
    ++n_keys;
    return *this;
  }
  GgufBuilder& string(std::string_view name, std::string_view value) {
    keys_.text(name).u32(kString).text(value);
    ++n_keys;
    return *this;
  }
  GgufBuilder& strings(std::string_view name, const std::vector<std::string>& values) {
    keys_.text(name).u32(kArray).u32(kString).u64(values.size());
    for (const auto& v : values) keys_.text(v);
    ++n_keys;
    return *this;
  }
  template <class T>
  GgufBuilder& array(std::string_view name, std::uint32_t type, const std::vector<T>& values) {
    keys_.text(name).u32(kArray).u32(type).u64(values.size());
    for (T v : values) keys_.put(v);
    ++n_keys;
    return *this;
  }
  GgufBuilder& raw_key(const Bytes& bytes) {
    keys_.add(bytes);
    ++n_keys;
    return *this;
  }
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type, std::uint64_t offset) {
    tensors_.text(name).u32(static_cast<std::uint32_t>(dims.size()));
    for (auto d : dims) tensors_.u64(d);
    tensors_.u32(type).u64(offset);
    ++n_tensors;
    return *this;
  }
  Bytes build(std::size_t data_bytes, std::size_t alignment = 32) const {
    Bytes out;
    out.u32(magic).u32(version).u64(n_tensors).u64(n_keys).add(keys_).add(tensors_);
    if (data_bytes > 0) {
      out.align(alignment);
      for (std::size_t i = 0; i < data_bytes; ++i) out.put(static_cast<unsigned char>(i));
    }
    return out;
  }

  std::uint32_t magic = 0x46554747;
  std::uint32_t version = 3;
  std::uint64_t n_tensors = 0;
  std::uint64_t n_keys = 0;

 private:
  Bytes keys_, tensors_;
};

}  // namespace troupe::device
