#include "tests/simt/simt.h"

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace troupe::simt {

namespace {

namespace ctx = boost::context;

constexpr std::size_t kStackBytes = 128 * 1024;
constexpr std::size_t kStackStep = 9 * 64;
constexpr unsigned kMaxThreads = 1024;

struct Abort {};  // unwinds a thread of a launch that failed

// The memory of a stack may be anything once it is given back: the marks of frames that never returned go with it.
struct Stacks {
  ctx::protected_fixedsize_stack pages{kStackBytes};
  ctx::stack_context allocate() { return pages.allocate(); }
  void deallocate(ctx::stack_context& stack) noexcept {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(static_cast<const char*>(stack.sp) - kStackBytes, kStackBytes);
#endif
    pages.deallocate(stack);
  }
};

std::string place(const char* operation, const Where& w) {
  return std::string(operation) + " (" + w.file + ":" + std::to_string(w.line) + ")";
}

}  // namespace

enum class Mode : std::uint8_t { fresh, ready, at_warp, at_block, done };

struct Lane {
  Machine::State* machine = nullptr;
  ctx::fiber fiber, scheduler;
  const void* stack_bottom = nullptr;
  void* fake_stack = nullptr;  // ASan's
  Dim3 index;
  unsigned linear = 0;
  Mode mode = Mode::fresh;
  // Where it waits.
  unsigned mask = 0;
  void* argument = nullptr;
  Complete complete = nullptr;
  int value = 0;
  const char* operation = "";
  Where where;
};

struct Machine::State {
  std::uint64_t random;
  std::uint64_t switches = 0, launches = 0;
  std::vector<std::unique_ptr<Lane>> lanes;
  const std::function<void()>* body = nullptr;
  Dim3 grid, block, block_at;
  unsigned threads = 0;
  std::vector<unsigned> ready, held;        // held: ready too, and run when nobody else is
  unsigned slow_begin = 0, slow_end = 0;    // who is held
  unsigned at_warp[kMaxThreads / 32] = {};  // by warp: the lanes that wait there
  std::vector<std::pair<const void*, std::unique_ptr<std::byte[]>>> shared;
  std::string fault;
  bool abort = false, quit = false;
  int any = 0;  // of the last block barrier
  const void* main_bottom = nullptr;
  std::size_t main_size = 0;
  void* main_fake = nullptr;

  // Below n (n < 2^32).
  std::size_t draw(std::size_t n) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    return (random * 0x2545F4914F6CDD1Dull >> 32) * n >> 32;
  }
  void make_ready(unsigned linear) { (linear >= slow_begin && linear < slow_end ? held : ready).push_back(linear); }
  void resume(Lane& l);
  void leave(Lane& l);
  void suspend(Lane& l) {
    leave(l);
    if (abort) throw Abort{};
  }
  void lane_main(Lane& l);
  void make_lanes();
  void run_block();
  void release_warp(Lane& arrived);
  void release_block();
  std::string deadlock() const;
  void stop();
};

namespace {
thread_local Lane* current = nullptr;

Lane& self(const char* what) {
  if (current == nullptr) throw Fault(std::string(what) + " outside a launch");
  return *current;
}
}  // namespace

void Machine::State::resume(Lane& l) {
  ++switches;
  Lane* const before = std::exchange(current, &l);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&main_fake, l.stack_bottom, kStackBytes);
#endif
  l.fiber = std::move(l.fiber).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(main_fake, nullptr, nullptr);
#endif
  current = before;
}

void Machine::State::leave(Lane& l) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&l.fake_stack, main_bottom, main_size);
#endif
  l.scheduler = std::move(l.scheduler).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(l.fake_stack, &main_bottom, &main_size);
#endif
}

void Machine::State::lane_main(Lane& l) {
  while (!quit) {
    try {
      (*body)();
    } catch (const Abort&) {
    } catch (const std::exception& e) {
      if (fault.empty()) fault = e.what();
    }
    l.mode = Mode::done;
    leave(l);
  }
}

void Machine::State::make_lanes() {
  while (lanes.size() < threads) {
    auto lane = std::make_unique<Lane>();
    Lane& l = *lane;
    l.machine = this;
    l.linear = static_cast<unsigned>(lanes.size());
    Stacks stacks;
    const ctx::stack_context stack = stacks.allocate();
    l.stack_bottom = static_cast<const char*>(stack.sp) - kStackBytes;
    // Stacks begin at different lines of their pages, so that they do not share a few sets of the CPU's cache.
    const std::size_t skip = l.linear % 64 * kStackStep;
    l.fiber = ctx::fiber(std::allocator_arg, ctx::preallocated(static_cast<char*>(stack.sp) - skip, stack.size - skip, stack), stacks,
                         [this, &l](ctx::fiber&& from) {
#if defined(__SANITIZE_ADDRESS__)
                           __sanitizer_finish_switch_fiber(nullptr, &main_bottom, &main_size);
#endif
                           l.scheduler = std::move(from);
                           lane_main(l);
#if defined(__SANITIZE_ADDRESS__)
                           __sanitizer_start_switch_fiber(nullptr, main_bottom, main_size);
#endif
                           return std::move(l.scheduler);
                         });
    lanes.push_back(std::move(lane));
  }
}

// If every lane of the mask of `arrived` waits there, they go on.
void Machine::State::release_warp(Lane& arrived) {
  const unsigned first = arrived.linear / 32 * 32;
  unsigned& waiting = at_warp[arrived.linear / 32];
  waiting |= 1u << arrived.linear % 32;
  const unsigned there = threads - first < 32 ? (1u << (threads - first)) - 1 : ~0u;
  if ((arrived.mask & ~there) != 0) {
    fault = place(arrived.operation, arrived.where) + " names lanes that the block does not have";
    return;
  }
  if ((waiting & arrived.mask) != arrived.mask) return;
  void* arguments[32] = {};
  for (unsigned i = 0; i < 32; ++i) {
    if ((arrived.mask >> i & 1) == 0) continue;
    const Lane& l = *lanes[first + i];
    if (l.mask != arrived.mask || l.complete != arrived.complete || l.where.line != arrived.where.line) {
      fault =
          "lanes of one mask wait at different places: " + place(l.operation, l.where) + " and " + place(arrived.operation, arrived.where);
      return;
    }
    arguments[i] = l.argument;
  }
  try {
    if (arrived.complete != nullptr) arrived.complete(arguments);
  } catch (const std::exception& e) {
    fault = place(arrived.operation, arrived.where) + ": " + e.what();
    return;
  }
  waiting &= ~arrived.mask;
  for (unsigned i = 0; i < 32; ++i) {
    if ((arrived.mask >> i & 1) == 0) continue;
    lanes[first + i]->mode = Mode::ready;
    make_ready(first + i);
  }
}

void Machine::State::release_block() {
  any = 0;
  const Lane& first = *lanes[0];
  for (unsigned i = 0; i < threads; ++i) {
    Lane& l = *lanes[i];
    if (l.where.line != first.where.line || std::strcmp(l.where.file, first.where.file) != 0) {
      fault =
          "threads of one block wait at different places: " + place(l.operation, l.where) + " and " + place(first.operation, first.where);
      return;
    }
    any |= l.value;
    l.mode = Mode::ready;
    make_ready(i);
  }
}

std::string Machine::State::deadlock() const {
  unsigned left = 0, at_block = 0, at_warp = 0;
  const Lane* waits = nullptr;
  for (unsigned i = 0; i < threads; ++i) {
    const Lane& l = *lanes[i];
    left += l.mode == Mode::done;
    at_block += l.mode == Mode::at_block;
    at_warp += l.mode == Mode::at_warp;
    if (l.mode != Mode::done && waits == nullptr) waits = &l;
  }
  return "a barrier that some threads never reach: " + std::to_string(at_block) + " of " + std::to_string(threads) +
         " threads wait for the block, " + std::to_string(at_warp) + " for their warp, " + std::to_string(left) +
         " have left; one waits at " + place(waits->operation, waits->where);
}

void Machine::State::run_block() {
  for (auto& s : shared) s.second.reset();
  shared.clear();
  std::fill(std::begin(at_warp), std::end(at_warp), 0u);
  // In one block of two all threads are alike. In the others a warp, or a thread, falls behind as far as barriers let it: what chance
  // would take very long to find.
  const std::size_t kind = draw(4);
  const auto slow = static_cast<unsigned>(draw(threads));
  slow_begin = kind == 0 ? slow / 32 * 32 : slow;
  slow_end = kind == 0 ? slow_begin + 32 : kind == 1 ? slow + 1 : slow;
  ready.clear(), held.clear();
  for (unsigned i = 0; i < threads; ++i) {
    make_ready(i);
    Lane& l = *lanes[i];
    l.mode = Mode::fresh;
    l.index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
  }
  unsigned at_block = 0, left = 0;
  while (left < threads) {
    if (ready.empty() && held.empty()) {
      if (at_block == threads) {
        at_block = 0;
        release_block();
      } else {
        fault = deadlock();
      }
      if (!fault.empty()) return;
    }
    std::vector<unsigned>& from = ready.empty() ? held : ready;
    const std::size_t pick = draw(from.size());
    Lane& l = *lanes[from[pick]];
    from[pick] = from.back();
    from.pop_back();
    l.mode = Mode::ready;
    resume(l);
    switch (l.mode) {
      case Mode::done:
        ++left;
        break;
      case Mode::at_block:
        ++at_block;
        break;
      case Mode::at_warp:
        release_warp(l);
        break;
      default:
        make_ready(l.linear);
    }
    if (!fault.empty()) return;
  }
}

// Unwinds what is left of a launch that failed.
void Machine::State::stop() {
  abort = true;
  for (unsigned i = 0; i < threads; ++i) {
    Lane& l = *lanes[i];
    if (l.mode != Mode::fresh && l.mode != Mode::done) resume(l);
  }
  abort = false;
}

Machine::Machine(std::uint64_t seed) : state_(std::make_unique<State>()) { state_->random = seed * 0x9E3779B97F4A7C15ull + 0x1234567u; }

Machine::~Machine() {
  state_->quit = true;
  const std::function<void()> nothing = [] {};
  state_->body = &nothing;
  for (auto& l : state_->lanes) state_->resume(*l);
}

void Machine::launch(Dim3 grid, Dim3 block, const std::function<void()>& body) {
  State& s = *state_;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z, threads = std::uint64_t{block.x} * block.y * block.z;
  if (current != nullptr) throw Fault("a launch inside a launch");
  if (blocks == 0 || blocks > 1u << 24 || threads == 0 || threads > kMaxThreads || grid.y > 65535 || grid.z > 65535) {
    throw Fault("a launch of " + std::to_string(blocks) + " blocks of " + std::to_string(threads) + " threads is no valid configuration");
  }
  ++s.launches;
  s.grid = grid, s.block = block, s.threads = static_cast<unsigned>(threads);
  s.body = &body;
  s.make_lanes();
  std::vector<std::uint32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[s.draw(i)]);
  for (const std::uint32_t b : order) {
    s.block_at = {b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)};
    s.run_block();
    if (!s.fault.empty()) {
      s.stop();
      throw Fault(std::exchange(s.fault, {}));
    }
  }
}

std::uint64_t Machine::switches() const { return state_->switches; }
std::uint64_t Machine::launches() const { return state_->launches; }

Dim3 thread_index() { return self("threadIdx").index; }
Dim3 block_index() { return self("blockIdx").machine->block_at; }
Dim3 block_size() { return self("blockDim").machine->block; }
Dim3 grid_size() { return self("gridDim").machine->grid; }
unsigned lane_index() { return self("a lane's index").linear % 32; }

int block_barrier(int value, const char* operation, Where where) {
  Lane& l = self(operation);
  l.value = value, l.operation = operation, l.where = where;
  l.mode = Mode::at_block;
  l.machine->suspend(l);
  return l.machine->any;
}

void warp_barrier(unsigned mask, void* argument, Complete complete, const char* operation, Where where) {
  Lane& l = self(operation);
  if ((mask >> (l.linear % 32) & 1) == 0) throw Fault(place(operation, where) + ": the calling lane is not in the mask");
  l.mask = mask, l.argument = argument, l.complete = complete, l.operation = operation, l.where = where;
  l.mode = Mode::at_warp;
  l.machine->suspend(l);
}

void* shared_memory(const void* key, std::size_t bytes) {
  Machine::State& m = *self("shared memory").machine;
  for (const auto& [k, memory] : m.shared) {
    if (k == key) return memory.get();
  }
  std::unique_ptr<std::byte[]> memory(new std::byte[bytes]);
  std::memset(memory.get(), 0xff, bytes);
  return m.shared.emplace_back(key, std::move(memory)).second.get();
}

void may_switch() {
  Lane& l = self("an atomic");
  if (l.machine->draw(2) != 0) l.machine->suspend(l);
}

}  // namespace troupe::simt
