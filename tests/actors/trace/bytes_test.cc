#include "actors/trace/bytes.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "tests/messages/samples.h"

namespace troupe::actors::trace {
namespace {

std::string encoded(const auto& x, std::uint64_t key = 0) {
  Bytes bytes;
  Encoder(bytes, nullptr, key).put(x);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Decoder decoder(const std::string& bytes) { return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}; }

TEST(Bytes, EveryTypeComesBackAndNoTruncationOfItDoes) {
  test::for_each_sample([](const auto& x) {
    using T = std::decay_t<decltype(x)>;
    const std::string bytes = encoded(x);
    T back{};
    Decoder d = decoder(bytes);
    ASSERT_FALSE(d.get(back));
    EXPECT_EQ(d.left(), 0u);
    EXPECT_EQ(encoded(back), bytes);
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      T cut{};
      const std::string part = bytes.substr(0, n);
      Decoder c = decoder(part);
      EXPECT_TRUE(c.get(cut)) << "of " << bytes.size() << " bytes, " << n << " are enough";
    }
  });
}

TEST(Bytes, NumbersAtTheirLimits) {
  for (const std::uint64_t x : {std::uint64_t{0}, std::uint64_t{127}, std::uint64_t{128}, std::numeric_limits<std::uint64_t>::max()}) {
    const std::string bytes = encoded(x);
    std::uint64_t back = 1;
    Decoder d = decoder(bytes);
    EXPECT_FALSE(d.get(back));
    EXPECT_EQ(back, x);
  }
  for (const std::int64_t x :
       {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    const std::string bytes = encoded(x);
    std::int64_t back = 1;
    Decoder d = decoder(bytes);
    EXPECT_FALSE(d.get(back));
    EXPECT_EQ(back, x);
  }
  std::uint8_t small = 0;
  EXPECT_TRUE(decoder(encoded(std::uint32_t{256})).get(small)) << "a number that its field does not hold";
}

TEST(Bytes, BytesAreWrittenAsTheyAre) {
  const std::vector<std::uint8_t> all = {0, 1, 127, 128, 255};
  const std::string bytes = encoded(all);
  EXPECT_EQ(bytes.size(), all.size() + 1);
  std::vector<std::uint8_t> back;
  Decoder d = decoder(bytes);
  EXPECT_FALSE(d.get(back));
  EXPECT_EQ(back, all);
}

TEST(Bytes, APayloadIsWrittenOnceInABlock) {
  const auto request = Shared<Request>::of(test::request());
  Bytes bytes;
  SharedTable table;
  Encoder e(bytes, &table);
  e.put(request);
  const std::size_t first = bytes.size();
  e.put(request);
  EXPECT_EQ(bytes.size(), first + 1);
  ReadTable read;
  Decoder d(bytes.data(), bytes.size(), &read);
  Shared<Request> a, b;
  EXPECT_FALSE(d.get(a));
  EXPECT_FALSE(d.get(b));
  EXPECT_EQ(a.get(), b.get());
  Shared<StepPlan> other;
  EXPECT_TRUE(Decoder(bytes.data() + first, 1, &read).get(other)) << "a reference to a payload of another type";
  EXPECT_TRUE(Decoder(bytes.data() + first, 1).get(a)) << "a reference to nothing";
}

TEST(Bytes, RedactionKeepsLengthsAndHashesAndNothingElse) {
  Request r = test::request();
  r.stop.stop = {"secret"};
  const std::string bytes = encoded(r, 12345);
  Request back;
  Decoder d = decoder(bytes);
  ASSERT_FALSE(d.get(back));
  ASSERT_EQ(back.prompt.size(), r.prompt.size());
  EXPECT_NE(back.prompt, r.prompt);
  EXPECT_EQ(back.prompt[1], 0u);
  EXPECT_EQ(back.stop.stop[0], "******");
  EXPECT_EQ(back.sampling.logit_bias[0].id, 0u);
  EXPECT_EQ(encoded(r, 12345), bytes) << "equal lists of ids have equal hashes";
  EXPECT_NE(encoded(r, 99999), bytes) << "and nobody can guess from them without the key";
  Readback rb{5, 17, CellStatus::ok, 3}, rb_back;
  const std::string rb_bytes = encoded(rb, 1);
  Decoder rd = decoder(rb_bytes);
  ASSERT_FALSE(rd.get(rb_back));
  EXPECT_EQ(rb_back, (Readback{0, 0, CellStatus::ok, 3}));
  const DeviceError error{DeviceError::Phase::forward, ErrorCode::internal, 0, 0, "for people"};
  EXPECT_EQ(encoded(error, 1), encoded(error));
}

TEST(Schema, TellsFormsApart) {
  std::set<std::uint64_t> schemas;
  std::size_t n = 0;
  const auto add = [&](std::uint64_t schema) {
    schemas.insert(schema);
    ++n;
  };
  add(Schema::of<Launch>()), add(Schema::of<Enqueue>()), add(Schema::of<Settled>()), add(Schema::of<Effect>()), add(Schema::of<Commit>());
  add(Schema::of<Optional<TimeNs>>()), add(Schema::of<std::vector<TimeNs>>()), add(Schema::of<TimeNs>()), add(Schema::of<std::uint64_t>());
  EXPECT_EQ(schemas.size(), n);
  EXPECT_EQ(Schema::of<Launch>(), Schema::of<Launch>());
}

}  // namespace
}  // namespace troupe::actors::trace
