// Where a core puts what it wants sent. The shell (or the simulator) empties it after every call, in order; capacity
// is kept, so a step in steady state allocates nothing.
#pragma once

#include <utility>
#include <variant>
#include <vector>

namespace troupe::actors {

template <class... Messages>
class Outbox {
 public:
  using Item = std::variant<Messages...>;

  template <class M>
  void push(M message) {
    items_.emplace_back(std::move(message));
  }
  const std::vector<Item>& items() const { return items_; }
  // Calls f(message) for each, in order, and forgets them.
  template <class F>
  void drain(F&& f) {
    for (Item& item : items_) std::visit([&](auto& m) { f(std::move(m)); }, item);
    items_.clear();
  }
  bool empty() const { return items_.empty(); }
  void clear() { items_.clear(); }

 private:
  std::vector<Item> items_;
};

}  // namespace troupe::actors
