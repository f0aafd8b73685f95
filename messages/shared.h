// Shared<T>: an immutable payload that every hop of a message shares, from a pool.
//
// A payload is filled by its owner through Draft<T>, frozen, and from then on only read. When the last reference
// goes (on any thread) the object returns to its pool with its capacity, so a step in steady state allocates
// nothing (DESIGN §5.3). Pool<T>::draft() may be called by one thread only; dropping references by any.
//
// T needs a default constructor and `void clear()` (keeps capacity).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace troupe {

namespace shared_detail {

template <class T>
struct Node;

// The returned nodes: pushed by any thread, taken all at once by the pool's owner. It outlives its pool as long as
// a node is out, by reference count.
template <class T>
struct Home {
  std::atomic<Node<T>*> returned{nullptr};
  std::atomic<std::size_t> refs{1};  // the pool, and every node that is out

  void push(Node<T>* node) {
    Node<T>* head = returned.load(std::memory_order_relaxed);
    do node->next = head;
    while (!returned.compare_exchange_weak(head, node, std::memory_order_release, std::memory_order_relaxed));
  }
  void release() {
    if (refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    for (Node<T>* n = returned.load(std::memory_order_acquire); n != nullptr;) delete std::exchange(n, n->next);
    delete this;
  }
};

template <class T>
struct Node {
  T value{};
  std::atomic<std::size_t> refs{0};
  Home<T>* home = nullptr;  // null: plain heap object
  Node* next = nullptr;

  void release() {
    if (refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (home == nullptr) {
      delete this;
      return;
    }
    Home<T>* h = home;
    value.clear();
    h->push(this);
    h->release();
  }
};

}  // namespace shared_detail

template <class T>
class Draft;

template <class T>
class Shared {
 public:
  Shared() = default;
  Shared(const Shared& o) : node_(o.node_) {
    if (node_) node_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Shared(Shared&& o) noexcept : node_(std::exchange(o.node_, nullptr)) {}
  Shared& operator=(Shared o) noexcept {
    std::swap(node_, o.node_);
    return *this;
  }
  ~Shared() {
    if (node_) node_->release();
  }

  explicit operator bool() const { return node_ != nullptr; }
  const T& operator*() const { return node_->value; }
  const T* operator->() const { return &node_->value; }
  const T* get() const { return node_ ? &node_->value : nullptr; }

  // A payload outside any pool (tests, edges, and what a recording loads).
  static Shared of(T value) {
    auto* n = new shared_detail::Node<T>;
    n->value = std::move(value);
    n->refs.store(1, std::memory_order_relaxed);
    return Shared(n);
  }

 private:
  friend class Draft<T>;
  explicit Shared(shared_detail::Node<T>* n) : node_(n) {}
  shared_detail::Node<T>* node_ = nullptr;
};

// Reads forward to the pointee; loading makes a new one. An empty reference is written as a flag.
template <class Inspector, class T>
auto inspect(Inspector& f, Shared<T>& x) {
  bool present = static_cast<bool>(x);
  if constexpr (Inspector::reads_state) {
    if (!present) {
      return f(present);
    }
    return f(present, const_cast<T&>(*x));
  } else {
    auto err = f(present);
    if (err || !present) {
      x = {};
      return err;
    }
    T value{};
    err = f(value);
    x = Shared<T>::of(std::move(value));
    return err;
  }
}

// The one writable reference to a payload that is being filled; freeze() ends writing.
template <class T>
class Draft {
 public:
  Draft(Draft&& o) noexcept : node_(std::exchange(o.node_, nullptr)) {}
  Draft& operator=(Draft&&) = delete;
  ~Draft() {
    if (node_) node_->release();
  }
  T& operator*() { return node_->value; }
  T* operator->() { return &node_->value; }
  Shared<T> freeze() && { return Shared<T>(std::exchange(node_, nullptr)); }

 private:
  template <class U>
  friend class Pool;
  explicit Draft(shared_detail::Node<T>* n) : node_(n) {}
  shared_detail::Node<T>* node_;
};

template <class T>
class Pool {
 public:
  Pool() : home_(new shared_detail::Home<T>) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    while (free_ != nullptr) delete std::exchange(free_, free_->next);
    home_->release();
  }

  Draft<T> draft() {
    if (free_ == nullptr) free_ = home_->returned.exchange(nullptr, std::memory_order_acquire);
    shared_detail::Node<T>* n = free_;
    if (n != nullptr) {
      free_ = n->next;
      n->next = nullptr;
    } else {
      n = new shared_detail::Node<T>;
      n->home = home_;
      ++made_;
    }
    n->refs.store(1, std::memory_order_relaxed);
    home_->refs.fetch_add(1, std::memory_order_relaxed);
    return Draft<T>(n);
  }
  std::size_t made() const { return made_; }  // objects ever allocated; constant in steady state

 private:
  shared_detail::Home<T>* home_;
  shared_detail::Node<T>* free_ = nullptr;
  std::size_t made_ = 0;
};

}  // namespace troupe
