// Adapters as replicas hand them to each other: what is written is read back, and whatever else comes is refused with a reason.
#include "device/models/lora_image.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace troupe::device {
namespace {

ModelConfig small_model() {
  ModelConfig c;
  c.layers = 2;
  c.width = 32;
  c.ffn = 64;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 8;
  return c;
}

constexpr std::size_t kHead = 32;  // bytes before the ranks and scales

// v of layer 0, rank 2, and down of layer 1, rank 3; every float is another one.
std::vector<std::uint8_t> sound() {
  std::vector<LoraImagePair> pairs(2 * kLoraTargets);
  pairs[static_cast<std::size_t>(LoraTarget::v)] = {2, 0.5f};
  pairs[kLoraTargets + static_cast<std::size_t>(LoraTarget::down)] = {3, -1.25f};
  LoraImage image = make_lora_image(small_model(), pairs);
  const std::size_t from = kHead + pairs.size() * sizeof(LoraImagePair);
  EXPECT_EQ(image.bytes.size(), from + 4 * (2 * (32 + 16) + 3 * (64 + 32)));
  for (std::size_t at = from; at < image.bytes.size(); at += 4) {
    const auto x = static_cast<float>(at);
    std::memcpy(image.bytes.data() + at, &x, 4);
  }
  return image.bytes;
}

float number(const kernels::Weight& w, std::size_t i) {
  float x = 0;
  std::memcpy(&x, static_cast<const std::uint8_t*>(w.data) + 4 * i, 4);
  return x;
}

TEST(LoraImage, IsReadBack) {
  const auto bytes = sound();
  const auto r = LoraAdapter::from_image(bytes, "x", small_model());
  ASSERT_TRUE(r) << r.error().what;
  const LoraAdapter& a = r.value();
  EXPECT_EQ(a.rank(), 3u);
  EXPECT_EQ(a.layers(), 2u);
  EXPECT_EQ(a.pair(0, LoraTarget::q).rank, 0u);
  const LoraPair &v = a.pair(0, LoraTarget::v), &down = a.pair(1, LoraTarget::down);
  EXPECT_EQ(v.rank, 2u);
  EXPECT_EQ(v.scale, 0.5f);
  EXPECT_EQ(v.b.rows, 16u);
  EXPECT_EQ(v.b.cols, 2u);
  EXPECT_EQ(down.scale, -1.25f);
  EXPECT_EQ(down.a.cols, 64u);
  const std::size_t from = kHead + 2 * kLoraTargets * sizeof(LoraImagePair);
  EXPECT_EQ(number(v.a, 0), static_cast<float>(from));
  EXPECT_EQ(number(v.b, 0), static_cast<float>(from + 4 * 2 * 32));
  EXPECT_EQ(number(down.b, 3 * 32 - 1), static_cast<float>(bytes.size() - 4));
}

TEST(LoraImage, RefusesWhatIsNone) {
  const auto refused = [](std::vector<std::uint8_t> bytes, const ModelConfig& model = small_model()) {
    const auto r = LoraAdapter::from_image(bytes, "x", model);
    if (r) return std::string();
    EXPECT_EQ(r.error().code, ErrorCode::bad_file);
    return r.error().what;
  };
  const auto with = [](std::size_t at, std::uint32_t x) {
    auto bytes = sound();
    std::memcpy(bytes.data() + at, &x, 4);
    return bytes;
  };
  const auto whole = sound();
  EXPECT_EQ(refused(whole), "");
  for (std::size_t n = 0; n < whole.size(); n += n < 200 ? 1 : 97)
    EXPECT_NE(refused({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)}), "") << n;
  auto longer = whole;
  longer.push_back(0);
  EXPECT_NE(refused(longer), "");
  for (std::size_t at = 0; at < kHead; at += 4) EXPECT_NE(refused(with(at, 77)), "") << at;
  ModelConfig other = small_model();
  other.ffn = 96;
  EXPECT_NE(refused(whole, other), "");
  const std::size_t v = kHead + static_cast<std::size_t>(LoraTarget::v) * sizeof(LoraImagePair);
  for (const std::uint32_t rank : {1u, 3u, 0xFFFFFFFFu, 0x80000000u}) EXPECT_NE(refused(with(v, rank)), "") << rank;
  for (const float scale : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &scale, 4);
    EXPECT_NE(refused(with(v + 4, bits)), "");
  }
  ModelConfig hybrid = small_model();
  hybrid.recurrent = {true, false};
  EXPECT_NE(refused(whole, hybrid).find("v_proj of layer 0"), std::string::npos);
}

}  // namespace
}  // namespace troupe::device
