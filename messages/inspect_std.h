// std::variant and Optional<T> (std::optional) for every inspector (CAF 0.17's, the trace's, a test's).
//
// An inspector that loads must provide, found by argument-dependent lookup,
//   result_type inspect_failed(Inspector&)   - "what was read is no value of this type".
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace troupe {

template <class Inspector, class... Ts>
auto inspect_variant(Inspector& f, std::variant<Ts...>& v) {
  if constexpr (Inspector::reads_state) {
    auto index = static_cast<std::uint8_t>(v.index());
    return std::visit([&](auto& x) { return f(index, x); }, v);
  } else {
    std::uint8_t index = 0;
    if (auto err = f(index)) return err;
    auto result = inspect_failed(f);
    std::uint8_t i = 0;
    (void)((i++ == index ? (result = f(v.template emplace<Ts>()), true) : false) || ...);
    return result;
  }
}

// std::optional with an inspection that argument-dependent lookup finds.
template <class T>
struct Optional : std::optional<T> {
  using std::optional<T>::optional;
};

template <class Inspector, class T>
auto inspect(Inspector& f, Optional<T>& v) {
  bool present = v.has_value();
  if constexpr (Inspector::reads_state) {
    return present ? f(present, *v) : f(present);
  } else {
    auto err = f(present);
    if (err) return err;
    if (!present) {
      v.reset();
      return err;
    }
    return f(v.emplace());
  }
}

}  // namespace troupe
