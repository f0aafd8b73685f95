#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "device/models/gguf.h"
#include "device/models/gguf_format.h"

namespace troupe::device {

using namespace gguf_format;

namespace {

constexpr std::uint32_t kMagic = 0x46554747;     // "GGUF"
constexpr std::uint64_t kMaxEntries = 1u << 20;  // keys, and tensors: far above what any model has
constexpr std::uint64_t kMaxAlignment = 1u << 20;
constexpr std::uint32_t kMaxDims = 4;
constexpr std::uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;             // key length, key, type, value
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name length, name, dimension count, dimension, type, offset

}  // namespace

// Walks the bytes once, from the front, and fills a GgufFile. Every read is checked against what is left.
class GgufReader {
 public:
  GgufReader(std::span<const std::byte> bytes, std::string name) {
    file_.bytes_ = bytes;
    file_.name_ = std::move(name);
  }

  Result<GgufFile> read() && {
    TROUPE_TRY(read_header());
    for (std::uint64_t i = 0; i < n_keys_; ++i) {
      TROUPE_TRY(read_value(i));
    }
    TROUPE_TRY(index_keys());
    TROUPE_TRY(read_alignment());
    for (std::uint64_t i = 0; i < n_tensors_; ++i) {
      TROUPE_TRY(read_tensor(i));
    }
    TROUPE_TRY(place_tensors());
    return Result<GgufFile>(std::move(file_));
  }

 private:
  std::uint64_t left() const { return file_.bytes_.size() - at_; }

  template <class... Args>
  Error bad(fmt::format_string<Args...> format, Args&&... args) const {
    return {ErrorCode::bad_file, file_.name_ + ": " + fmt::format(format, std::forward<Args>(args)...)};
  }
  template <class... Args>
  Error unsupported(fmt::format_string<Args...> format, Args&&... args) const {
    return {ErrorCode::unsupported, file_.name_ + ": " + fmt::format(format, std::forward<Args>(args)...)};
  }

  template <class T>
  Result<T> take(std::string_view what) {
    if (left() < sizeof(T)) {
      return bad("{} at byte {}: {} bytes expected, but the file ends after {}", what, at_, sizeof(T), left());
    }
    T value = load<T>(file_.bytes_.data() + at_);
    at_ += sizeof(T);
    return value;
  }

  Result<std::string_view> take_string(std::string_view what) {
    TROUPE_TRY(auto size, take<std::uint64_t>(what));
    if (size > left()) return bad("{} at byte {}: a string of {} bytes, but only {} bytes follow", what, at_, size, left());
    std::string_view s(reinterpret_cast<const char*>(file_.bytes_.data() + at_), size);
    at_ += size;
    return s;
  }

  Result<void> read_header() {
    TROUPE_TRY(auto magic, take<std::uint32_t>("magic"));
    if (magic != kMagic) return bad("byte 0: not a GGUF file (it begins with {:#010x}, GGUF with {:#010x})", magic, kMagic);
    TROUPE_TRY(auto version, take<std::uint32_t>("version"));
    if (version == 0x02000000 || version == 0x03000000) {
      return unsupported("byte 4: a big-endian GGUF file; convert it to little-endian");
    }
    if (version != 2 && version != 3) return unsupported("byte 4: GGUF version {}; versions 2 and 3 are read", version);
    file_.version_ = version;
    TROUPE_TRY(auto n_tensors, take<std::uint64_t>("tensor count"));
    TROUPE_TRY(auto n_keys, take<std::uint64_t>("key count"));
    if (n_tensors > kMaxEntries || n_tensors > left() / kMinTensorBytes) {
      return bad("byte 8: {} tensors cannot be in a file of {} bytes (at most {} are read)", n_tensors, file_.bytes_.size(), kMaxEntries);
    }
    if (n_keys > kMaxEntries || n_keys > left() / kMinKeyBytes) {
      return bad("byte 16: {} keys cannot be in a file of {} bytes (at most {} are read)", n_keys, file_.bytes_.size(), kMaxEntries);
    }
    n_tensors_ = n_tensors;
    n_keys_ = n_keys;
    file_.values_.reserve(n_keys);
    file_.tensors_.reserve(n_tensors);
    return success();
  }

  Result<void> read_value(std::uint64_t index) {
    const std::uint64_t begin = at_;
    TROUPE_TRY(auto key, take_string(fmt::format("key {}", index)));
    if (key.empty()) return bad("key {} at byte {}: its name is empty", index, begin);
    const std::string where = fmt::format("key '{}'", shown(key));
    GgufFile::Value v{.key = key};
    TROUPE_TRY(auto type, take<std::uint32_t>(where));
    v.type = type;
    if (type == kArray) {
      v.is_array = true;
      TROUPE_TRY(auto element, take<std::uint32_t>(where));
      TROUPE_TRY(auto count, take<std::uint64_t>(where));
      if (element == kArray) return unsupported("{} at byte {}: an array of arrays; only arrays of plain values are read", where, at_ - 12);
      v.type = element;
      v.count = count;
    }
    if (v.type >= kValueTypes) {
      return unsupported("{} at byte {}: value type {}; types 0 to {} are known", where, at_ - (v.is_array ? 12 : 4), v.type,
                         kValueTypes - 1);
    }
    v.at = at_;
    TROUPE_TRY(skip(v, where));
    file_.values_.push_back(v);
    return success();
  }

  // Passes over the elements of `v`, and checks those that are not just any bits.
  Result<void> skip(const GgufFile::Value& v, const std::string& where) {
    const std::uint64_t least = v.type == kString ? 8 : kValueBytes[v.type];
    if (v.count > left() / least) {
      return bad("{} at byte {}: {} elements of type {} expected, but only {} bytes follow", where, at_, v.count, kValueNames[v.type],
                 left());
    }
    if (v.type == kString) {
      for (std::uint64_t i = 0; i < v.count; ++i) {
        TROUPE_TRY(take_string(where));
      }
      return success();
    }
    if (v.type == kBool) {
      for (std::uint64_t i = 0; i < v.count; ++i) {
        auto b = std::to_integer<unsigned>(file_.bytes_[at_ + i]);
        if (b > 1) return bad("{} at byte {}: a bool is 0 or 1, not {}", where, at_ + i, b);
      }
    }
    at_ += v.count * least;
    return success();
  }

  Result<void> index_keys() {
    auto& order = file_.values_by_key_;
    order.resize(file_.values_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](auto a, auto b) { return std::pair(file_.values_[a].key, a) < std::pair(file_.values_[b].key, b); });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const auto& v = file_.values_[order[i]];
      if (v.key == file_.values_[order[i - 1]].key) return bad("key '{}' stands twice; its second value is at byte {}", shown(v.key), v.at);
    }
    return success();
  }

  Result<void> read_alignment() {
    if (!file_.has("general.alignment")) return success();
    TROUPE_TRY(auto value, file_.get_uint("general.alignment"));
    if (value < 8 || value > kMaxAlignment || !std::has_single_bit(value)) {
      return bad("key 'general.alignment' is {}; a power of two from 8 to {} is expected", value, kMaxAlignment);
    }
    alignment_ = value;
    return success();
  }

  Result<void> read_tensor(std::uint64_t index) {
    const std::uint64_t begin = at_;
    TROUPE_TRY(auto name, take_string(fmt::format("tensor {}", index)));
    if (name.empty()) return bad("tensor {} at byte {}: its name is empty", index, begin);
    const std::string where = fmt::format("tensor '{}'", shown(name));
    GgufTensor t;
    t.name = name;
    TROUPE_TRY(auto n_dims, take<std::uint32_t>(where));
    if (n_dims < 1 || n_dims > kMaxDims) return bad("{} at byte {}: {} dimensions; 1 to {} are expected", where, at_ - 4, n_dims, kMaxDims);
    std::uint64_t elements = 1;
    for (std::uint32_t d = 0; d < n_dims; ++d) {
      TROUPE_TRY(auto dim, take<std::uint64_t>(where));
      if (dim == 0 || dim > std::numeric_limits<std::int64_t>::max() / elements) {
        return bad("{} at byte {}: dimension {} is {}; the number of elements must be from 1 to 2^63-1", where, at_ - 8, d, dim);
      }
      elements *= dim;
      t.dims.push_back(dim);
    }
    TROUPE_TRY(auto type, take<std::uint32_t>(where));
    t.type = static_cast<TensorType>(type);
    const auto shape = layout(t.type);
    if (!shape) return unsupported("{} at byte {}: tensor type {} is not known; convert the model, e.g. to Q8_0", where, at_ - 4, type);
    if (t.dims[0] % shape->block != 0) {
      return bad("{} at byte {}: its first dimension {} is not a multiple of {}, the block of {}", where, at_ - 4, t.dims[0], shape->block,
                 device::name(t.type));
    }
    TROUPE_TRY(auto offset, take<std::uint64_t>(where));
    if (offset % alignment_ != 0)
      return bad("{} at byte {}: its offset {} is not a multiple of the alignment {}", where, at_ - 8, offset, alignment_);
    const std::uint64_t blocks = elements / shape->block;
    if (blocks > file_.bytes_.size() / shape->block_bytes) {
      return bad("{} at byte {}: {} elements of {} do not fit into a file of {} bytes", where, begin, elements, device::name(t.type),
                 file_.bytes_.size());
    }
    t.bytes = blocks * shape->block_bytes;
    offsets_.push_back(offset);
    file_.tensors_.push_back(std::move(t));
    return success();
  }

  // The data begins at the next aligned byte after the last description.
  Result<void> place_tensors() {
    auto& tensors = file_.tensors_;
    auto& by_name = file_.tensors_by_name_;
    by_name.resize(tensors.size());
    std::iota(by_name.begin(), by_name.end(), 0u);
    std::sort(by_name.begin(), by_name.end(),
              [&](auto a, auto b) { return std::pair(tensors[a].name, a) < std::pair(tensors[b].name, b); });
    for (std::size_t i = 1; i < by_name.size(); ++i) {
      if (tensors[by_name[i]].name == tensors[by_name[i - 1]].name) {
        return bad("tensor '{}' is described twice (tensors {} and {})", shown(tensors[by_name[i]].name), by_name[i - 1], by_name[i]);
      }
    }
    const std::uint64_t size = file_.bytes_.size();
    const std::uint64_t data = (at_ + alignment_ - 1) / alignment_ * alignment_;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (data > size || offsets_[i] > size - data || tensors[i].bytes > size - data - offsets_[i]) {
        return bad("tensor '{}': its {} bytes at offset {} of the data (which begins at byte {}) end past the file's {} bytes",
                   shown(tensors[i].name), tensors[i].bytes, offsets_[i], data, size);
      }
      tensors[i].data = file_.bytes_.data() + data + offsets_[i];
    }
    std::vector<std::uint32_t> by_place(by_name);
    std::sort(by_place.begin(), by_place.end(), [&](auto a, auto b) { return std::pair(offsets_[a], a) < std::pair(offsets_[b], b); });
    for (std::size_t i = 1; i < by_place.size(); ++i) {
      const auto a = by_place[i - 1], b = by_place[i];
      if (tensors[a].bytes > offsets_[b] - offsets_[a]) {
        return bad("tensor '{}' at byte {} overlaps tensor '{}', {} bytes at byte {}", shown(tensors[b].name), data + offsets_[b],
                   shown(tensors[a].name), tensors[a].bytes, data + offsets_[a]);
      }
    }
    return success();
  }

  GgufFile file_;
  std::uint64_t at_ = 0;
  std::uint64_t n_tensors_ = 0;
  std::uint64_t n_keys_ = 0;
  std::uint64_t alignment_ = 32;
  std::vector<std::uint64_t> offsets_;  // of each tensor, from the start of the data
};

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string name) { return GgufReader(bytes, std::move(name)).read(); }

}  // namespace troupe::device
