// Where a row's input id comes from, what its argmax may not choose, and what the device hands back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "messages/ids.h"

namespace troupe {

// The input of a row (R6: a token that is not known yet is a type, never a sentinel number).
class FeedSource {
 public:
  enum class Kind : std::uint8_t {
    host,  // ids are in StepPlan::tokens [begin, begin + Row::n_tokens)
    feed,  // one id, read on the device from the cell that row `row` of step `ticket` writes
  };
  FeedSource() = default;
  static FeedSource host(std::uint32_t begin) { return FeedSource(Kind::host, {}, begin); }
  static FeedSource feed(Ticket ticket, std::uint32_t row) { return FeedSource(Kind::feed, ticket, row); }

  Kind kind() const { return kind_; }
  bool is_feed() const { return kind_ == Kind::feed; }
  std::uint32_t begin() const { return index_; }     // kind() == host
  std::uint32_t feed_row() const { return index_; }  // kind() == feed
  Ticket feed_ticket() const { return ticket_; }     // kind() == feed
  bool operator==(const FeedSource&) const = default;

  template <class Inspector>
  friend auto inspect(Inspector& f, FeedSource& x) {
    return f(x.kind_, x.ticket_, x.index_);
  }

 private:
  FeedSource(Kind kind, Ticket ticket, std::uint32_t index) : kind_(kind), ticket_(ticket), index_(index) {}
  Kind kind_ = Kind::host;
  Ticket ticket_{};
  std::uint32_t index_ = 0;
};

// Masked argmax (DESIGN §5.2): p = the row's argmax; if p is one of the two ids, the answer is the argmax with both
// excluded. Lowest index wins a tie, NaN never wins.
struct RowMask {
  static constexpr Token kNone = 0xFFFFFFFFu;
  Token a = kNone;
  Token b = kNone;
  bool operator==(const RowMask&) const = default;
  bool empty() const { return a == kNone && b == kNone; }
};

enum class CellStatus : std::uint32_t {
  ok,
  no_token,    // all NaN, or nothing left after the mask
  stale_feed,  // the cell that it read had another ticket's tag
  poisoned,    // the cell that it read held an error
};

// One row of a step as read back: 16 bytes in the page-locked ring. `input` is the id as the device read it (for a
// chunk: its last id), so that the host can check it against what it committed (R2).
struct Readback {
  Token input = 0;
  Token id = 0;
  CellStatus status = CellStatus::ok;
  std::uint32_t tag = 0;  // the ticket's, written by the device
  bool operator==(const Readback&) const = default;
};

// Log-probabilities of a row that the device sampled, as read back: of its logits before penalties, biases and bars.
struct ReadLogprobs {
  static constexpr std::uint32_t kMaxBest = 20;
  float chosen = 0;
  std::uint32_t n_best = 0;
  Token ids[kMaxBest] = {};
  float best[kMaxBest] = {};
};

static_assert(std::is_trivially_copyable_v<ReadLogprobs>);
static_assert(std::is_trivially_copyable_v<FeedSource> && std::is_trivially_copyable_v<Readback>);

template <class Inspector>
auto inspect(Inspector& f, RowMask& x) {
  return f(x.a, x.b);
}
template <class Inspector>
auto inspect(Inspector& f, Readback& x) {
  return f(x.input, x.id, x.status, x.tag);
}

const char* name(CellStatus status);
std::string label(const FeedSource& x);  // "host@12" | "feed(t1.41[3])"
std::string label(const RowMask& x);     // "-" | "bar(2,17)"
std::string label(const Readback& x);    // "5>17 ok"

}  // namespace troupe
