#include "device/models/gguf.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "tests/device/models/gguf_builder.h"

namespace troupe::device {
namespace {

// Every value type, arrays, and three tensors: F32 [4,2] at 0, Q8_0 [32] at 32, BF16 [3] at 96.
GgufBuilder sample() {
  GgufBuilder b;
  b.string("general.architecture", "llama").key<std::uint8_t>("u8", kU8, 200).key<std::int8_t>("i8", kI8, -3);
  b.key<std::uint16_t>("u16", kU16, 60000).key<std::int16_t>("i16", kI16, 7).key<std::uint32_t>("u32", kU32, 4000000000u);
  b.key<std::int32_t>("i32", kI32, -5).key<float>("f32", kF32, 1.5f).key<std::uint8_t>("yes", kBool, 1).key<std::uint8_t>("no", kBool, 0);
  b.key<std::uint64_t>("u64", kU64, ~0ull).key<std::int64_t>("i64", kI64, 1ll << 40).key<double>("f64", kF64, 0.1);
  b.strings("words", {"a", "", "long word"}).array<std::int32_t>("ints", kI32, {1, -2, 3}).array<float>("floats", kF32, {0.5f, -1});
  b.array<std::uint64_t>("big", kU64, {~0ull}).array<double>("doubles", kF64, {0.25}).array<std::uint8_t>("bools", kBool, {0, 1});
  b.tensor("x", {4, 2}, 0, 0).tensor("y", {32}, 8, 32).tensor("z", {3}, 30, 96);
  return b;
}
constexpr std::size_t kSampleData = 96 + 6;

Result<GgufFile> parse(const Bytes& bytes) { return GgufFile::parse(bytes.span(), "t.gguf"); }

// The error of a file that must be refused. It names the file.
Error refusal(const Bytes& bytes) {
  auto file = parse(bytes);
  if (file) {
    ADD_FAILURE() << "accepted";
    return {};
  }
  EXPECT_EQ(file.error().what.find("t.gguf: "), 0u) << file.error().what;
  return file.error();
}

#define EXPECT_REFUSED(bytes, code_, ...)                                                                                    \
  do {                                                                                                                       \
    const Error e = refusal(bytes);                                                                                          \
    EXPECT_EQ(e.code, code_) << e.what;                                                                                      \
    for (std::string part : {__VA_ARGS__}) EXPECT_NE(e.what.find(part), std::string::npos) << part << " not in: " << e.what; \
  } while (false)

TEST(Gguf, ReadsEveryValueType) {
  const Bytes bytes = sample().build(kSampleData);
  auto r = parse(bytes);
  ASSERT_TRUE(r) << r.error().what;
  GgufFile f = std::move(r).value();
  EXPECT_EQ(f.version(), 3u);
  EXPECT_EQ(f.get_string("general.architecture").value(), "llama");
  EXPECT_EQ(f.get_uint("u8").value(), 200u);
  EXPECT_EQ(f.get_uint("u16").value(), 60000u);
  EXPECT_EQ(f.get_uint("i16").value(), 7u);
  EXPECT_EQ(f.get_uint("u32").value(), 4000000000u);
  EXPECT_EQ(f.get_uint("u64").value(), ~0ull);
  EXPECT_EQ(f.get_uint("i64").value(), 1ull << 40);
  EXPECT_EQ(f.get_float("f32").value(), 1.5);
  EXPECT_EQ(f.get_float("f64").value(), 0.1);
  EXPECT_TRUE(f.get_bool("yes").value());
  EXPECT_FALSE(f.get_bool("no").value());
  EXPECT_EQ(f.get_strings("words").value(), (std::vector<std::string_view>{"a", "", "long word"}));
  EXPECT_EQ(f.get_ints("ints").value(), (std::vector<std::int64_t>{1, -2, 3}));
  EXPECT_EQ(f.get_floats("floats").value(), (std::vector<float>{0.5f, -1}));
  EXPECT_EQ(f.get_floats("doubles").value(), (std::vector<float>{0.25f}));
  EXPECT_TRUE(f.has("ints"));
  EXPECT_FALSE(f.has("int"));
  EXPECT_EQ(f.keys().size(), 19u);
  EXPECT_EQ(f.keys()[0], "general.architecture");
}

TEST(Gguf, GettersRefuseOtherTypesAndNameTheKey) {
  const Bytes bytes = sample().build(kSampleData);
  auto f = parse(bytes).value();
  auto expect = [](auto result, ErrorCode code, const char* part) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, code) << result.error().what;
    EXPECT_NE(result.error().what.find(part), std::string::npos) << result.error().what;
  };
  expect(f.get_uint("nothing"), ErrorCode::not_found, "'nothing'");
  expect(f.get_uint("i32"), ErrorCode::bad_file, "not negative");
  expect(f.get_uint("f32"), ErrorCode::bad_file, "found float32");
  expect(f.get_uint("yes"), ErrorCode::bad_file, "found bool");
  expect(f.get_uint("ints"), ErrorCode::bad_file, "found an array of int32");
  expect(f.get_float("u32"), ErrorCode::bad_file, "found uint32");
  expect(f.get_bool("u8"), ErrorCode::bad_file, "found uint8");
  expect(f.get_string("words"), ErrorCode::bad_file, "found an array of string");
  expect(f.get_strings("ints"), ErrorCode::bad_file, "found an array of int32");
  expect(f.get_strings("general.architecture"), ErrorCode::bad_file, "found string");
  expect(f.get_ints("words"), ErrorCode::bad_file, "found an array of string");
  expect(f.get_ints("big"), ErrorCode::bad_file, "below 2^63");
  expect(f.get_floats("ints"), ErrorCode::bad_file, "found an array of int32");
}

TEST(Gguf, FindsTensors) {
  const Bytes bytes = sample().build(kSampleData);
  GgufFile moved = parse(bytes).value();
  GgufFile f = std::move(moved);
  ASSERT_EQ(f.tensors().size(), 3u);
  const GgufTensor* y = f.tensor("y");
  ASSERT_NE(y, nullptr);
  EXPECT_EQ(y->type, TensorType::Q8_0);
  EXPECT_EQ(y->bytes, 34u);
  EXPECT_EQ(std::to_integer<int>(y->data[0]), 32);
  EXPECT_EQ(f.tensor("x")->dims, (std::vector<std::uint64_t>{4, 2}));
  EXPECT_EQ(f.tensor("x")->bytes, 32u);
  EXPECT_EQ(f.tensor("z")->bytes, 6u);
  EXPECT_EQ(f.tensor("zz"), nullptr);
  EXPECT_STREQ(name(TensorType::Q4_1), "Q4_1");
  EXPECT_FALSE(layout(static_cast<TensorType>(4)).has_value());
}

TEST(Gguf, Version2AndAnotherAlignment) {
  GgufBuilder b;
  b.version = 2;
  b.key<std::uint32_t>("general.alignment", kU32, 8).tensor("x", {2}, 0, 8);
  const Bytes bytes = b.build(16, 8);
  auto f = parse(bytes);
  ASSERT_TRUE(f) << f.error().what;
  EXPECT_EQ(f.value().version(), 2u);
  EXPECT_EQ(std::to_integer<int>(f.value().tensor("x")->data[0]), 8);
}

TEST(Gguf, EveryTruncationIsRefused) {
  const Bytes whole = sample().build(kSampleData);
  ASSERT_TRUE(parse(whole));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    // A copy of exactly that size, so that a sanitizer sees a read past it.
    const std::vector<std::byte> cut(whole.span().begin(), whole.span().begin() + static_cast<std::ptrdiff_t>(n));
    auto f = GgufFile::parse(cut, "t.gguf");
    ASSERT_FALSE(f) << "cut after " << n << " bytes";
    EXPECT_EQ(f.error().code, ErrorCode::bad_file) << f.error().what;
    EXPECT_EQ(f.error().what.find("t.gguf: "), 0u) << f.error().what;
  }
}

TEST(Gguf, EveryByteMayBeAnything) {
  const Bytes whole = sample().build(kSampleData);
  for (std::size_t n = 0; n + kSampleData < whole.size(); ++n) {
    for (unsigned char value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::vector<std::byte> copy(whole.span().begin(), whole.span().end());
      copy[n] = static_cast<std::byte>(value);
      auto f = GgufFile::parse(copy, "t.gguf");
      if (!f) {
        EXPECT_FALSE(f.error().what.empty());
        continue;
      }
      for (const auto& t : f.value().tensors()) {
        EXPECT_GE(t.data, copy.data());
        EXPECT_LE(t.data + t.bytes, copy.data() + copy.size());
      }
    }
  }
}

TEST(Gguf, Header) {
  auto b = sample();
  b.magic = 0x46474755;
  EXPECT_REFUSED(b.build(kSampleData), ErrorCode::bad_file, "byte 0", "not a GGUF file");
  b = sample();
  b.version = 1;
  EXPECT_REFUSED(b.build(kSampleData), ErrorCode::unsupported, "byte 4", "version 1");
  b.version = 4;
  EXPECT_REFUSED(b.build(kSampleData), ErrorCode::unsupported, "version 4");
  b.version = 0x03000000;
  EXPECT_REFUSED(b.build(kSampleData), ErrorCode::unsupported, "big-endian");
}

TEST(Gguf, Counts) {
  for (std::uint64_t n : {std::uint64_t{1} << 20, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    auto b = sample();
    b.n_tensors = n;
    EXPECT_REFUSED(b.build(kSampleData), ErrorCode::bad_file, "byte 8", "tensors cannot be");
    b = sample();
    b.n_keys = n;
    EXPECT_REFUSED(b.build(kSampleData), ErrorCode::bad_file, "byte 16", "keys cannot be");
    Bytes array;
    array.text("many").u32(kArray).u32(kU32).u64(n).u32(0);
    EXPECT_REFUSED(sample().raw_key(array).build(0), ErrorCode::bad_file, "key 'many'", "elements of type uint32");
    Bytes strings;
    strings.text("many").u32(kArray).u32(kString).u64(n).u64(0);
    EXPECT_REFUSED(sample().raw_key(strings).build(0), ErrorCode::bad_file, "key 'many'", "elements of type string");
    Bytes text;
    text.text("long").u32(kString).u64(n);
    EXPECT_REFUSED(sample().raw_key(text).build(0), ErrorCode::bad_file, "key 'long'", "a string of");
    Bytes key;
    key.u64(n).u32(0);
    EXPECT_REFUSED(sample().raw_key(key).build(0), ErrorCode::bad_file, "key 19", "a string of");
  }
}

TEST(Gguf, Keys) {
  EXPECT_REFUSED(sample().string("u8", "again").build(kSampleData), ErrorCode::bad_file, "'u8' stands twice");
  EXPECT_REFUSED(sample().string("", "x").build(kSampleData), ErrorCode::bad_file, "name is empty");
  EXPECT_REFUSED(sample().key<std::uint32_t>("odd", 13, 0).build(kSampleData), ErrorCode::unsupported, "key 'odd'", "value type 13");
  EXPECT_REFUSED(sample().key<std::uint8_t>("maybe", kBool, 2).build(kSampleData), ErrorCode::bad_file, "key 'maybe'", "not 2");
  Bytes nested;
  nested.text("nest").u32(kArray).u32(kArray).u64(1).u32(kU8).u64(1).put<std::uint8_t>(0);
  EXPECT_REFUSED(sample().raw_key(nested).build(kSampleData), ErrorCode::unsupported, "key 'nest'", "array of arrays");
  for (std::uint32_t a : {0u, 4u, 33u, 1u << 31}) {
    EXPECT_REFUSED(sample().key<std::uint32_t>("general.alignment", kU32, a).build(kSampleData), ErrorCode::bad_file, "general.alignment");
  }
  EXPECT_REFUSED(sample().string("general.alignment", "32").build(kSampleData), ErrorCode::bad_file, "general.alignment");
}

TEST(Gguf, Tensors) {
  const std::uint64_t huge = ~std::uint64_t{0};
  auto with = [](std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type, std::uint64_t offset) {
    return sample().tensor(name, dims, type, offset).build(kSampleData + 64);
  };
  EXPECT_REFUSED(with("x", {1}, 0, 128), ErrorCode::bad_file, "tensor 'x' is described twice");
  EXPECT_REFUSED(with("", {1}, 0, 128), ErrorCode::bad_file, "name is empty");
  EXPECT_REFUSED(with("w", {}, 0, 128), ErrorCode::bad_file, "tensor 'w'", "0 dimensions");
  EXPECT_REFUSED(with("w", {1, 1, 1, 1, 1}, 0, 128), ErrorCode::bad_file, "tensor 'w'", "5 dimensions");
  EXPECT_REFUSED(with("w", {4, 0}, 0, 128), ErrorCode::bad_file, "tensor 'w'", "dimension 1 is 0");
  EXPECT_REFUSED(with("w", {huge}, 0, 128), ErrorCode::bad_file, "tensor 'w'", "number of elements");
  EXPECT_REFUSED(with("w", {1ull << 32, 1ull << 32}, 0, 128), ErrorCode::bad_file, "tensor 'w'", "number of elements");
  EXPECT_REFUSED(with("w", {1ull << 62}, 28, 128), ErrorCode::bad_file, "tensor 'w'", "do not fit");
  EXPECT_REFUSED(with("w", {4}, 4, 128), ErrorCode::unsupported, "tensor 'w'", "tensor type 4");
  EXPECT_REFUSED(with("w", {4}, 1000, 128), ErrorCode::unsupported, "tensor 'w'", "tensor type 1000");
  EXPECT_REFUSED(with("w", {48}, 2, 128), ErrorCode::bad_file, "tensor 'w'", "multiple of 32, the block of Q4_0");
  EXPECT_REFUSED(with("w", {4}, 0, 129), ErrorCode::bad_file, "tensor 'w'", "multiple of the alignment 32");
  EXPECT_REFUSED(with("w", {4}, 0, 192), ErrorCode::bad_file, "tensor 'w'", "end past the file");
  EXPECT_REFUSED(with("w", {4}, 0, huge - 31), ErrorCode::bad_file, "tensor 'w'", "end past the file");
  EXPECT_REFUSED(with("w", {4}, 0, 64), ErrorCode::bad_file, "overlaps tensor 'y'");
  EXPECT_REFUSED(with("w", {8}, 0, 0), ErrorCode::bad_file, "overlaps tensor 'x'");
  EXPECT_TRUE(parse(with("w", {4}, 0, 128)));
  // One byte too many.
  EXPECT_REFUSED(sample().tensor("v", {33}, 24, 128).tensor("w", {1}, 24, 160).build(256), ErrorCode::bad_file, "'w'",
                 "overlaps tensor 'v'");
  EXPECT_TRUE(parse(sample().tensor("v", {32}, 24, 128).tensor("w", {1}, 24, 160).build(256)));
}

TEST(Gguf, OpensAFile) {
  const std::string path = ::testing::TempDir() + "gguf_test.gguf";
  const Bytes bytes = sample().build(kSampleData);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.span().data()), static_cast<std::streamsize>(bytes.size()));
  auto f = GgufFile::open(path);
  ASSERT_TRUE(f) << f.error().what;
  EXPECT_EQ(std::remove(path.c_str()), 0);
  GgufFile moved = std::move(f).value();
  EXPECT_EQ(moved.get_uint("u8").value(), 200u);
  EXPECT_EQ(std::to_integer<int>(moved.tensor("z")->data[5]), 101);
  EXPECT_EQ(GgufFile::open(path).error().code, ErrorCode::io_failed);
  EXPECT_EQ(GgufFile::open(::testing::TempDir()).error().code, ErrorCode::io_failed);
  std::ofstream(path).close();
  EXPECT_EQ(GgufFile::open(path).error().code, ErrorCode::bad_file);
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

TEST(Gguf, ReadsAFileMadeByOtherSoftware) {
  auto f = GgufFile::open("tests/golden/tiny-llama/tiny-llama.Q4_1.gguf");
  ASSERT_TRUE(f) << f.error().what;
  EXPECT_EQ(f.value().get_string("general.architecture").value(), "llama");
  EXPECT_EQ(f.value().get_uint("llama.embedding_length").value(), 64u);
  EXPECT_EQ(f.value().get_strings("tokenizer.ggml.tokens").value().size(), 512u);
  EXPECT_EQ(f.value().tensors().size(), 20u);
  ASSERT_NE(f.value().tensor("token_embd.weight"), nullptr);
  EXPECT_EQ(f.value().tensor("token_embd.weight")->dims, (std::vector<std::uint64_t>{64, 512}));
}

}  // namespace
}  // namespace troupe::device
