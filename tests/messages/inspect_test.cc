// Every type is written and read by its own inspect(), whole; what is cut short or no value of the type is refused.
#include <gtest/gtest.h>

#include <random>
#include <typeinfo>
#include <utility>

#include "tests/messages/memory_inspector.h"
#include "tests/messages/samples.h"

namespace troupe::test {
namespace {

template <class T>
std::string write(const T& x) {
  Writer writer;
  T copy = x;
  inspect(writer, copy);
  return writer.bytes();
}

TEST(Inspect, EveryTypeComesBackWhole) {
  int n = 0;
  for_each_sample([&](const auto& x) {
    using T = std::decay_t<decltype(x)>;
    SCOPED_TRACE(typeid(T).name());
    const std::string bytes = write(x);
    Reader reader(bytes);
    T back{};
    ASSERT_FALSE(inspect(reader, back));
    EXPECT_EQ(reader.left(), 0u);
    EXPECT_EQ(write(back), bytes);
    ++n;
  });
  EXPECT_GT(n, 80);
}

TEST(Inspect, EveryEffectComesBackAsItself) {
  for_each_sample([&](const auto& x) {
    using T = std::decay_t<decltype(x)>;
    if constexpr (std::is_constructible_v<Effect, T> && std::is_trivially_copyable_v<T>) {
      SCOPED_TRACE(typeid(T).name());
      const Effect effect = x;
      Reader reader(write(effect));
      Effect back;
      ASSERT_FALSE(inspect(reader, back));
      EXPECT_TRUE(std::holds_alternative<T>(back));
      EXPECT_EQ(label(back), label(effect));
    }
  });
  EXPECT_EQ(std::variant_size_v<Effect>, 13u);
}

TEST(Inspect, EveryTruncationIsRefused) {
  for_each_sample([&](const auto& x) {
    using T = std::decay_t<decltype(x)>;
    SCOPED_TRACE(typeid(T).name());
    const std::string bytes = write(x);
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      Reader reader(bytes.substr(0, n));
      T back{};
      ASSERT_TRUE(inspect(reader, back)) << n << " of " << bytes.size();
    }
  });
}

// Bytes that nobody wrote: whatever comes out, reading ends and what it gave can be written again.
TEST(Inspect, DamagedBytesDoNoHarm) {
  std::mt19937 random(1);
  int accepted = 0, refused = 0;
  for_each_sample([&](const auto& x) {
    using T = std::decay_t<decltype(x)>;
    const std::string bytes = write(x);
    if (bytes.empty()) return;
    for (int i = 0; i < 200; ++i) {
      std::string damaged = bytes;
      damaged[random() % damaged.size()] = static_cast<char>(random());
      Reader reader(damaged);
      T back{};
      if (inspect(reader, back)) {
        ++refused;
      } else {
        (void)write(back);
        ++accepted;
      }
    }
  });
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

TEST(Inspect, AnUnknownAlternativeIsRefused) {
  for (int index = 0; index < 256; ++index) {
    Reader reader(std::string(1, static_cast<char>(index)) + std::string(64, '\0'));
    Effect effect;
    EXPECT_EQ(static_cast<bool>(inspect(reader, effect)), index >= 13) << index;
  }
}

TEST(Inspect, OptionalsAndSharedKeepTheirAbsence) {
  Request bare;
  Reader reader(write(bare));
  Request back = request();
  ASSERT_FALSE(inspect(reader, back));
  EXPECT_FALSE(back.think.has_value());
  EXPECT_FALSE(back.deadline.has_value());
  EXPECT_FALSE(back.sampling.seed.has_value());
  EXPECT_FALSE(back.sampling.logprobs.has_value());

  Reader empty(write(Launch{}));
  Launch launch{{}, Shared<StepPlan>::of(plan()), true};
  ASSERT_FALSE(inspect(empty, launch));
  EXPECT_FALSE(launch.plan);
}

// Converts to the type of any field; counts how many an aggregate takes.
struct AnyField {
  template <class T>
  operator T() const;
};
template <class T, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyField{})...}; };
}
template <class T, std::size_t N = 24>
constexpr std::size_t n_fields() {
  if constexpr (N == 0 || takes<T>(std::make_index_sequence<N>{})) {
    return N;
  } else {
    return n_fields<T, N - 1>();
  }
}

TEST(Inspect, NoFieldIsForgotten) {
  for_each_sample([&](const auto& x) {
    using T = std::decay_t<decltype(x)>;
    SCOPED_TRACE(typeid(T).name());
    std::size_t expected = 0;
    if constexpr (std::is_same_v<T, FeedSource>) {
      expected = 3;  // no aggregate
    } else if constexpr (std::is_same_v<T, SamplingParams>) {
      expected = 10;  // Optional fields cannot be counted
    } else if constexpr (std::is_same_v<T, Request>) {
      expected = 7;
    } else if constexpr (std::is_same_v<T, LogitsView>) {
      expected = 2;  // never the values
    } else {
      expected = n_fields<T>();
    }
    FieldCounter counter;
    T copy = x;
    inspect(counter, copy);
    EXPECT_EQ(counter.count, expected);
  });
}

}  // namespace
}  // namespace troupe::test
