// A sender's way to the recorder: a ring of bytes with one producer (the sender's thread) and one consumer (whoever holds
// the recorder's lock). Putting a record in copies the message as it is, references to its payloads included; encoding it
// is the consumer's work. So it costs the sender no allocation and no wait; a ring that is full drops the record and
// counts it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "actors/trace/record.h"

namespace troupe::actors::trace {

class Writer;

class Lane {
 public:
  explicit Lane(std::size_t bytes)  // a power of two
      : size_(bytes), bytes_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlign}))) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() {
    drain([](const RecordHead&, const void*, const auto&) {});
    ::operator delete (bytes_, std::align_val_t{kAlign});
  }

  // What the consumer can do with a message whose type it does not know.
  struct Ops {
    void (*write)(Writer& writer, RecordHead& head, const void* message) = nullptr;
    void (*destroy)(void* message) = nullptr;
  };

  // The producer's. `M` is copied; `ops` outlives the lane.
  template <class M>
  void push(const RecordHead& head, const M& message, const Ops& ops) {
    static_assert(alignof(M) <= kAlign);
    Entry* entry = reserve(kHeadBytes + round_up(sizeof(M)));
    if (entry == nullptr) return;
    entry->head = head;
    entry->ops = &ops;
    new (entry->message()) M(message);
    publish();
  }
  void push(const RecordHead& head) {
    Entry* entry = reserve(kHeadBytes);
    if (entry == nullptr) return;
    entry->head = head;
    entry->ops = nullptr;
    publish();
  }

  // The consumer's: f(head, message or null, ops) for each record there is, or for the `most` oldest. Whether there was any.
  template <class F>
  bool drain(F&& f, std::size_t most = SIZE_MAX) {
    std::uint64_t at = read_.load(std::memory_order_relaxed);
    const std::uint64_t end = written_.load(std::memory_order_acquire);
    const bool any = at != end;
    for (; at != end && most > 0; --most) {
      auto* entry = reinterpret_cast<Entry*>(bytes_ + (at & (size_ - 1)));
      const std::size_t bytes = entry->bytes;
      if (entry->head.kind != kPadding) {
        const Ops none{};
        f(std::as_const(entry->head), entry->ops != nullptr ? entry->message() : nullptr, entry->ops != nullptr ? *entry->ops : none);
        if (entry->ops != nullptr) entry->ops->destroy(entry->message());
      }
      at += bytes;
      read_.store(at, std::memory_order_release);
    }
    return any;
  }
  // The producer's, now and then: whether the consumer is so far behind that its hold on payloads makes pools grow.
  bool behind() { return (++pushes_ & 15) == 0 && next_ - read_.load(std::memory_order_relaxed) > kBehind; }
  // Records dropped since the last call.
  std::uint64_t take_lost() { return lost_.exchange(0, std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kAlign = 128;
  static constexpr std::uint64_t kBehind = 32 * 1024;  // some tens of steps
  static constexpr auto kPadding = static_cast<RecordKind>(0);
  struct Entry {
    std::uint32_t bytes;  // of the whole entry
    const Ops* ops;
    RecordHead head;
    void* message() { return reinterpret_cast<std::byte*>(this) + kHeadBytes; }
  };
  static constexpr std::size_t round_up(std::size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }
  static constexpr std::size_t kHeadBytes = kAlign;
  static_assert(sizeof(Entry) <= kHeadBytes, "what is left at the end of the ring has room for a padding entry");

  // Room for an entry in one piece; null: there is none, and it is counted.
  Entry* reserve(std::size_t bytes) {
    std::uint64_t at = next_;
    const std::size_t to_end = size_ - (at & (size_ - 1));
    const std::size_t pad = to_end < bytes ? to_end : 0;
    if (at + pad + bytes - seen_ > size_) {
      seen_ = read_.load(std::memory_order_acquire);
      if (at + pad + bytes - seen_ > size_) {
        lost_.fetch_add(1, std::memory_order_relaxed);
        return nullptr;
      }
    }
    if (pad != 0) {
      Entry* padding = new (bytes_ + (at & (size_ - 1))) Entry{static_cast<std::uint32_t>(pad), nullptr, {}};
      padding->head.kind = kPadding;
      at += pad;
    }
    next_ = at + bytes;
    return new (bytes_ + (at & (size_ - 1))) Entry{static_cast<std::uint32_t>(bytes), nullptr, {}};
  }
  void publish() { written_.store(next_, std::memory_order_release); }

  const std::size_t size_;
  std::byte* const bytes_;
  // The producer's own.
  alignas(64) std::uint64_t next_ = 0;
  std::uint32_t pushes_ = 0;
  std::uint64_t seen_ = 0;  // how far the consumer was when it was last asked
  alignas(64) std::atomic<std::uint64_t> written_{0};
  std::atomic<std::uint64_t> lost_{0};
  alignas(64) std::atomic<std::uint64_t> read_{0};
};

}  // namespace troupe::actors::trace
