// A growing array of bytes that keeps its memory, and the inspectors that write a message into one and read it back.
//
// The encoding: unsigned integers as LEB128, signed ones zigzag first, floats as their four bytes, bool and 8-bit enums
// as a byte, texts and vectors with their length before them. A Shared<T> is written by value at its first place in a
// block and as a number at the later ones: 0 = empty, 1 = by value, n + 2 = the n-th value of the block.
//
// The decoder takes nothing for granted: what it reads may come from anybody.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "messages/registry.h"

namespace troupe::actors::trace {

class Bytes {
 public:
  void byte(std::uint8_t x) {
    if (size_ == data_.size()) grow(1);
    data_[size_++] = x;
  }
  void raw(const void* from, std::size_t n) {
    if (data_.size() - size_ < n) grow(n);
    if (n != 0) std::memcpy(data_.data() + size_, from, n);
    size_ += n;
  }
  void varint(std::uint64_t x) {
    if (data_.size() - size_ < 10) grow(10);
    std::uint8_t* p = data_.data() + size_;
    for (; x >= 0x80; x >>= 7) *p++ = static_cast<std::uint8_t>(x | 0x80);
    *p++ = static_cast<std::uint8_t>(x);
    size_ = static_cast<std::size_t>(p - data_.data());
  }
  void zigzag(std::int64_t x) { varint(static_cast<std::uint64_t>(x) << 1 ^ static_cast<std::uint64_t>(x >> 63)); }
  void clear() { size_ = 0; }
  const std::uint8_t* data() const { return data_.data(); }
  std::uint8_t* data() { return data_.data(); }
  std::size_t size() const { return size_; }

 private:
  void grow(std::size_t n) { data_.resize((data_.size() + n) * 2); }
  std::vector<std::uint8_t> data_ = std::vector<std::uint8_t>(256);
  std::size_t size_ = 0;
};

// result_type of both inspectors: true on failure, as messages/inspect_std.h has it.
struct Status {
  bool failed = false;
  explicit operator bool() const { return failed; }
};

template <class T>
inline constexpr char kTag = 0;  // its address names T
template <class T, class... Ts>
inline constexpr bool kIsAny = (std::is_same_v<T, Ts> || ...);

// The payloads of the block that is being written. Holds them, so that none comes back with the same address.
class SharedTable {
 public:
  static constexpr std::size_t kCapacity = 128;
  SharedTable() { entries_.reserve(kCapacity); }
  ~SharedTable() { clear(); }
  SharedTable(const SharedTable&) = delete;
  SharedTable& operator=(const SharedTable&) = delete;

  std::size_t size() const { return entries_.size(); }
  // Its number, or kCapacity.
  std::size_t find(const void* value) const {
    for (std::size_t i = entries_.size(); i > 0; --i)
      if (entries_[i - 1].value == value) return i - 1;
    return kCapacity;
  }
  template <class T>
  void add(const Shared<T>& x) {
    static_assert(sizeof(Shared<T>) == sizeof(void*));
    if (entries_.size() == kCapacity) return;
    Entry& e = entries_.emplace_back();
    e.value = x.get();
    e.drop = [](void* storage) { static_cast<Shared<T>*>(storage)->~Shared<T>(); };
    new (e.storage) Shared<T>(x);
  }
  void clear() {
    for (Entry& e : entries_) e.drop(e.storage);
    entries_.clear();
  }

 private:
  struct Entry {
    const void* value = nullptr;
    void (*drop)(void*) = nullptr;
    alignas(void*) std::byte storage[sizeof(void*)];
  };
  std::vector<Entry> entries_;
};

class Encoder {
 public:
  static constexpr bool reads_state = true;
  static constexpr bool writes_state = false;
  using result_type = Status;

  // Without a table every payload is written by value. `redact_key` != 0: prompts, ids and texts are left out; their
  // lengths stay, and in the place of a list of ids a hash of it that nobody without the key can guess from.
  explicit Encoder(Bytes& out, SharedTable* table = nullptr, std::uint64_t redact_key = 0) : out_(out), table_(table), key_(redact_key) {}

  template <class... Ts>
  Status operator()(Ts&... xs) {
    (put(xs), ...);
    return {};
  }
  template <class T>
  void put(const T& value) {
    T& x = const_cast<T&>(value);  // inspect() takes what it reads by reference
    if constexpr (std::is_same_v<T, bool>) {
      out_.byte(x ? 1 : 0);
    } else if constexpr (std::is_enum_v<T>) {
      out_.varint(static_cast<std::uint64_t>(x));
    } else if constexpr (std::is_floating_point_v<T>) {
      out_.raw(&x, sizeof x);
    } else if constexpr (std::is_signed_v<T>) {
      out_.zigzag(x);
    } else if constexpr (std::is_integral_v<T>) {
      out_.varint(x);
    } else if constexpr (kIsAny<T, Readback, TokenEvent, SampledRow, TokenLogprob, TokenBias, RowMask, Think>) {
      if (key_ == 0) return void(inspect(*this, x));
      T blank = x;
      hide(blank);
      inspect(*this, blank);
    } else if constexpr (std::is_same_v<T, AdapterImage>) {
      // In a recording it would be megabytes, and no core looks into it.
      if (table_ != nullptr) return out_.varint(0);
      inspect(*this, x);
    } else if constexpr (kIsAny<T, Error, DeviceError, LoraCommand, LoraAck, LoraOutcome>) {
      const std::uint64_t key = std::exchange(key_, 0);  // for people to read, and no client's words
      inspect(*this, x);
      key_ = key;
    } else {
      inspect(*this, x);
    }
  }
  void put(const std::string& x) {
    out_.varint(x.size());
    if (key_ == 0) return out_.raw(x.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) out_.byte('*');
  }
  template <class T>
  void put(const std::vector<T>& xs) {
    out_.varint(xs.size());
    if constexpr (std::is_same_v<T, std::uint8_t>) {
      out_.raw(xs.data(), xs.size());
    } else if constexpr (std::is_same_v<T, Token>) {
      for (std::size_t i = 0; i < xs.size(); ++i) out_.varint(key_ == 0 ? xs[i] : i == 0 ? hash(xs) : 0);
    } else {
      for (const T& x : xs) put(x);
    }
  }
  template <class T>
  void put(const Shared<T>& x) {
    if (!x) return out_.varint(0);
    const std::size_t n = table_ != nullptr ? table_->find(x.get()) : SharedTable::kCapacity;
    if (n != SharedTable::kCapacity) return out_.varint(n + 2);
    out_.varint(1);
    put(*x);
    if (table_ != nullptr) table_->add(x);
  }

 private:
  static void hide(Readback& x) { x.input = x.id = 0; }
  static void hide(TokenEvent& x) { x.id = 0; }
  static void hide(SampledRow& x) { x.id = 0; }
  static void hide(TokenLogprob& x) { x.id = 0; }
  static void hide(TokenBias& x) { x.id = 0; }
  static void hide(Think& x) { x = {}; }
  static void hide(RowMask& x) {
    if (x.a != RowMask::kNone) x.a = 0;
    if (x.b != RowMask::kNone) x.b = 0;
  }
  std::uint32_t hash(const std::vector<Token>& xs) const {
    std::uint64_t h = key_;
    for (const Token x : xs) {
      h = (h ^ x) * 0xBF58476D1CE4E5B9ull;
      h ^= h >> 29;
    }
    h = (h ^ key_) * 0x94D049BB133111EBull;
    return static_cast<std::uint32_t>(h >> 32);
  }

  Bytes& out_;
  SharedTable* table_;
  std::uint64_t key_;
};

// The payloads of the block that is being read.
class ReadTable {
 public:
  template <class T>
  void add(const Shared<T>& x) {
    if (entries_.size() < SharedTable::kCapacity) entries_.push_back({&kTag<T>, std::make_shared<Shared<T>>(x)});
  }
  // Values of a message that is not read.
  void skip(std::uint64_t n) {
    for (; n > 0 && entries_.size() < SharedTable::kCapacity; --n) entries_.push_back({nullptr, nullptr});
  }
  template <class T>
  bool get(std::uint64_t n, Shared<T>& x) const {
    if (n >= entries_.size() || entries_[n].tag != &kTag<T>) return false;
    x = *static_cast<const Shared<T>*>(entries_[n].value.get());
    return true;
  }
  void clear() { entries_.clear(); }

 private:
  struct Entry {
    const char* tag;
    std::shared_ptr<void> value;
  };
  std::vector<Entry> entries_;
};

class Decoder {
 public:
  static constexpr bool reads_state = false;
  static constexpr bool writes_state = true;
  using result_type = Status;

  Decoder(const std::uint8_t* data, std::size_t size, ReadTable* table = nullptr) : at_(data), end_(data + size), table_(table) {}

  template <class... Ts>
  Status operator()(Ts&... xs) {
    Status status;
    (void)((status = get(xs), !status) && ...);
    return status;
  }
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  const std::uint8_t* at() const { return at_; }
  Status skip(std::size_t n) {
    if (n > left()) return {true};
    at_ += n;
    return {};
  }
  Status varint(std::uint64_t& x) {
    x = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) return {true};
      const std::uint8_t b = *at_++;
      x |= std::uint64_t{b & 0x7Fu} << shift;
      if (b < 0x80) return {};
    }
    return {true};
  }
  Status zigzag(std::int64_t& x) {
    std::uint64_t raw = 0;
    const Status status = varint(raw);
    x = static_cast<std::int64_t>(raw >> 1 ^ (~(raw & 1) + 1));
    return status;
  }

  template <class T>
  Status get(T& x) {
    if constexpr (std::is_same_v<T, bool>) {
      if (at_ == end_ || *at_ > 1) return {true};
      x = *at_++ != 0;
      return {};
    } else if constexpr (std::is_enum_v<T>) {
      std::uint64_t raw = 0;
      if (Status status = varint(raw)) return status;
      if (raw > kMostInEnum) return {true};
      x = static_cast<T>(raw);
      return {};
    } else if constexpr (std::is_floating_point_v<T>) {
      if (left() < sizeof x) return {true};
      std::memcpy(&x, at_, sizeof x);
      at_ += sizeof x;
      return {};
    } else if constexpr (std::is_signed_v<T>) {
      std::int64_t raw = 0;
      if (Status status = zigzag(raw)) return status;
      x = static_cast<T>(raw);
      return {x != raw};
    } else if constexpr (std::is_integral_v<T>) {
      std::uint64_t raw = 0;
      if (Status status = varint(raw)) return status;
      x = static_cast<T>(raw);
      return {x != raw};
    } else {
      return inspect(*this, x);
    }
  }
  Status get(std::string& x) {
    std::uint64_t n = 0;
    if (Status status = varint(n)) return status;
    if (n > left()) return {true};
    x.assign(reinterpret_cast<const char*>(at_), n);
    at_ += n;
    return {};
  }
  template <class T>
  Status get(std::vector<T>& xs) {
    std::uint64_t n = 0;
    if (Status status = varint(n)) return status;
    if (n > left()) return {true};  // each takes a byte at least
    if constexpr (std::is_same_v<T, std::uint8_t>) {
      xs.assign(at_, at_ + n);
      at_ += n;
      return {};
    }
    xs.clear();
    for (std::uint64_t i = 0; i < n; ++i) {
      if (Status status = get(xs.emplace_back())) return status;
    }
    return {};
  }
  template <class T>
  Status get(Shared<T>& x) {
    std::uint64_t n = 0;
    if (Status status = varint(n)) return status;
    x = {};
    if (n == 0) return {};
    if (n >= 2) return {table_ == nullptr || !table_->get(n - 2, x)};
    T value{};
    if (Status status = get(value)) return status;
    x = Shared<T>::of(std::move(value));
    if (table_ != nullptr) table_->add(x);
    return {};
  }

 private:
  static constexpr std::uint64_t kMostInEnum = 63;

  const std::uint8_t* at_;
  const std::uint8_t* end_;
  ReadTable* table_;
};

inline Status inspect_failed(Decoder&) { return {true}; }

// The form of a type as its inspect() shows it: equal for equal forms, so that a reader knows what it can decode.
class Schema {
 public:
  static constexpr bool reads_state = true;
  static constexpr bool writes_state = false;
  using result_type = Status;

  template <class T>
  static std::uint64_t of() {
    Schema s;
    T x{};
    s.put(x);
    return s.hash_;
  }
  template <class... Ts>
  Status operator()(Ts&... xs) {
    mix('{');
    (put(xs), ...);
    mix('}');
    return {};
  }

 private:
  template <class T>
  void put(T& x) {
    if constexpr (std::is_enum_v<T>) {
      mix('e');
    } else if constexpr (std::is_arithmetic_v<T>) {
      mix(std::is_same_v<T, bool> ? 'b' : std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u');
      mix(sizeof(T));
    } else {
      inspect(*this, x);
    }
  }
  void put(std::string&) { mix('s'); }
  template <class T>
  void put(std::vector<T>&) {
    one<T>('v');
  }
  template <class T>
  void put(Shared<T>&) {
    one<T>('p');
  }
  template <class T>
  void put(Optional<T>&) {
    one<T>('o');
  }
  template <class... Ts>
  void put(std::variant<Ts...>&) {
    (one<Ts>('|'), ...);
  }
  template <class T>
  void one(char kind) {
    mix(kind);
    T x{};
    put(x);
  }
  void mix(std::uint64_t x) { hash_ = (hash_ ^ x) * 0x100000001B3ull; }  // FNV-1a
  std::uint64_t hash_ = 0xCBF29CE484222325ull;
};

}  // namespace troupe::actors::trace
