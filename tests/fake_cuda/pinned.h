// Page-locked memory of the fake runtime: mapped twice. The streams use one view, which is always open. The host's view
// loses its access rights, page by page, while a copy is in flight (a copy into the page: no access; a copy out of it:
// no writing) and for ever once it was freed. A touch that is not allowed raises SIGSEGV; its handler writes it down
// and opens the page, so that the program goes on.
//
// Threads: alloc, hold, release and free under the machine's lock; the handler on whatever thread touched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fake_cuda {

enum class Access : std::uint8_t { copy_out, copy_in };  // of a queued copy, or kernel, to the host's memory: it reads, it writes

class Pinned {
 public:
  static constexpr std::size_t kMostAreas = 1024;  // between two resets
  struct Area;

  // nullptr: no more memory, or areas.
  void* alloc(std::size_t bytes);
  // What the area is, if `ptr` lies in one with `bytes` behind it; freed ones too.
  Area* find(const void* ptr, std::size_t bytes);
  static bool freed(const Area& area);
  static bool in_flight(const Area& area);
  static bool starts_at(const Area& area, const void* ptr);
  static std::size_t bytes(const Area& area);
  // The stream's view of an address of the host's.
  static void* stream_view(const Area& area, const void* ptr);

  void hold(Area& area, const void* ptr, std::size_t bytes, Access access);
  void release(Area& area, const void* ptr, std::size_t bytes, Access access);
  void free(Area& area);

  std::size_t alive() const;
  std::vector<std::string> describe_alive() const;
  // Touches since the last call.
  std::vector<std::string> take_touches();
  void reset();
};

// A stream's thread may touch in the order of its stream: what it touches is opened and not written down.
extern thread_local bool on_stream_thread;

}  // namespace fake_cuda
