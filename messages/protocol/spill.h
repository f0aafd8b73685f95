// Saved states: router <-> spill actor, scheduler -> spill actor. See protocol.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/error.h"
#include "messages/ids.h"
#include "messages/trace_ctx.h"

namespace troupe {

// A saved state goes in pieces of at most a place's size; `data` is that place's memory, the spill actor's until it answers.
struct StatePiece {
  std::uint32_t place = 0;
  SeqId seq;                      // whose state it is, and the name of its file
  std::uint32_t positions = 0;    // of the whole state, as all below
  std::uint32_t first_block = 0;  // blocks before it are not there (a sliding window has passed them)
  std::uint32_t n_blocks = 0;
  std::uint32_t n_parts = 0;  // of the recurrent state as of `positions`, each as long as a block; they lie behind the blocks
  std::uint64_t block_bytes = 0;
  std::uint32_t begin = 0;  // this piece: [begin, begin + count) of the blocks and parts
  std::uint32_t count = 0;
  std::uint64_t data = 0;
  bool last() const { return begin + count == n_blocks + n_parts; }
};
struct WriteState {
  TraceCtx ctx;
  StatePiece piece;
};
struct StateWritten {  // after the last piece the file is whole; after an error there is none
  TraceCtx ctx;
  std::uint32_t place = 0;
  SeqId seq;
  Error error;  // io_failed, overloaded (the limit)
};
struct ReadState {
  TraceCtx ctx;
  StatePiece piece;
};
struct StateRead {  // after the last piece, and after an error, the file is gone
  TraceCtx ctx;
  std::uint32_t place = 0;
  SeqId seq;
  Error error;  // io_failed, bad_file, not_found
};
struct DropState {  // the file, whole or not, is of no use to anybody
  TraceCtx ctx;
  SeqId seq;
};

template <class I>
auto inspect(I& f, StatePiece& x) {
  return f(x.place, x.seq, x.positions, x.first_block, x.n_blocks, x.n_parts, x.block_bytes, x.begin, x.count, x.data);
}
template <class I>
auto inspect(I& f, WriteState& x) {
  return f(x.ctx, x.piece);
}
template <class I>
auto inspect(I& f, StateWritten& x) {
  return f(x.ctx, x.place, x.seq, x.error);
}
template <class I>
auto inspect(I& f, ReadState& x) {
  return f(x.ctx, x.piece);
}
template <class I>
auto inspect(I& f, StateRead& x) {
  return f(x.ctx, x.place, x.seq, x.error);
}
template <class I>
auto inspect(I& f, DropState& x) {
  return f(x.ctx, x.seq);
}

std::string label(const StatePiece& x);  // "s1.5 blocks 0+4/7"
std::string label(const WriteState& x);
std::string label(const StateWritten& x);
std::string label(const ReadState& x);
std::string label(const StateRead& x);
std::string label(const DropState& x);

}  // namespace troupe
