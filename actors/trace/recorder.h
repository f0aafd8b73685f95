// The recorder of a runtime's messages: a lane from every sender, one thread that encodes what they hold, and two places
// where it goes: the flight recorder, and a file if one is asked for. A sender never waits for it.
//
// Threads: any, unless said otherwise. A lane is one sender's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "actors/trace/flight.h"
#include "actors/trace/format.h"
#include "actors/trace/lane.h"
#include "actors/trace/options.h"
#include "actors/trace/writer.h"
#include "messages/error.h"

namespace troupe::actors::trace {

struct RecorderFigures {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t lost = 0;  // records that found their lane full
};

class Recorder {
 public:
  // Error: io_failed, the file could not be made.
  static Result<std::shared_ptr<Recorder>> start(const TraceOptions& options, CoreConfigs configs);
  ~Recorder();

  // A lane of a new sender; as long as the recorder. `bytes`: a power of two.
  Lane& lane(std::size_t bytes);
  // A lane has something: wakes the recorder's thread if it sleeps.
  void poke() {
    if (asleep_.load(std::memory_order_relaxed)) wake();
  }

  // For a thread that has nothing better to do: encodes a record, unless that could wait for something (a file, or who
  // holds the lock). Whether there may be more. What a thread has just sent lies in its own cache, so that this is better
  // done there than by the recorder's thread.
  bool work();
  // For a sender whose lane is far behind, since the recorder's thread gets no CPU: it encodes some of its records itself,
  // unless that could wait for something (a file, or who holds the lock).
  void help(Lane& lane);

  // Writes what the flight recorder holds to a file. Errors: bad_request when it is off, io_failed.
  Result<void> dump(const std::string& path);
  // Records what is still in the lanes, ends the thread and closes the file; later records are dropped. Idempotent.
  // Error: the first that writing the file met.
  Result<void> stop();
  RecorderFigures figures() const;

 private:
  Recorder(const TraceOptions& options, CoreConfigs configs);
  void run();
  bool pass();  // mutex_ held, as for drain()
  bool drain(Lane& lane, std::size_t most);
  void take(const std::uint8_t* block, std::size_t size);
  Result<void> dump_locked(const std::string& path);
  void dump_fault(ErrorCode code);
  void wake();

  const TraceOptions options_;
  const CoreConfigs configs_;
  mutable std::mutex mutex_;  // the consumer's end of the lanes, and all below
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  FlightRing flight_;
  Writer writer_;
  int fd_ = -1;
  Result<void> file_;
  std::atomic<std::uint64_t> messages_{0}, bytes_{0}, lost_{0};
  bool fault_dumped_ = false;
  bool stopping_ = false;
  std::atomic<bool> asleep_{false};
  std::thread thread_;
};

}  // namespace troupe::actors::trace
