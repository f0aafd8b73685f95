#include "device/models/upload.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

namespace troupe::device {

namespace {

constexpr std::size_t kAreaBytes = 8u << 20;

// Of what goes on whatever fails.
class FirstError {
 public:
  bool well(Result<void> done) {
    const bool is = done.has_value();
    if (!is && result_) result_ = std::move(done);
    return is;
  }
  const Result<void>& result() const { return result_; }

 private:
  Result<void> result_ = success();
};

class Upload {
 public:
  Upload(Driver& driver, std::size_t total) : driver_(driver), area_bytes_(std::clamp<std::size_t>(total, 64, kAreaBytes)) {}
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;
  ~Upload() { (void)close(); }

  Result<void> open() {
    TROUPE_TRY(stream_, driver_.create_stream());
    for (Area& area : areas_) {
      TROUPE_TRY(area.event, driver_.create_event());
      TROUPE_TRY(void* memory, driver_.alloc_host_pinned(area_bytes_));
      area.memory = static_cast<std::byte*>(memory);
    }
    return success();
  }

  Result<void> put(const UploadPiece& piece) {
    const auto* from = static_cast<const std::byte*>(piece.from);
    for (std::size_t at = 0; at < piece.bytes;) {
      if (filled_ == area_bytes_) {
        TROUPE_TRY(flush());
        TROUPE_TRY(turn());
      }
      const std::size_t n = std::min(piece.bytes - at, area_bytes_ - filled_);
      std::byte* const area = areas_[current_].memory + filled_;
      std::memcpy(area, from + at, n);
      filled_pieces_.push_back({piece.to + at, area, n});
      filled_ += n;
      at += n;
    }
    return success();
  }

  // Enqueues the copies of what was put into the current area.
  Result<void> flush() {
    for (const UploadPiece& piece : filled_pieces_) {
      TROUPE_TRY(driver_.copy_h2d_async(piece.to, piece.from, piece.bytes, stream_));
      copies_ = true;
    }
    filled_pieces_.clear();
    return success();
  }

  // Waits, and gives everything back that the driver takes. Called again: what was left.
  Result<void> close() {
    FirstError first;
    if (copies_) {
      if (!first.well(wait())) return first.result();
      copies_ = false;
    }
    for (Area& area : areas_) {
      if (area.event != 0 && first.well(driver_.destroy_event(area.event))) area.event = 0;
      if (area.memory != nullptr && first.well(driver_.free_host_pinned(area.memory, area_bytes_))) area.memory = nullptr;
    }
    if (stream_ != 0 && first.well(driver_.destroy_stream(stream_))) stream_ = 0;
    return first.result();
  }

 private:
  struct Area {
    Event event = 0;
    std::byte* memory = nullptr;
    bool recorded = false;
  };

  // To the other area, once it is free.
  Result<void> turn() {
    TROUPE_TRY(driver_.record_event(areas_[current_].event, stream_));
    areas_[current_].recorded = true;
    current_ = 1 - current_;
    filled_ = 0;
    if (!areas_[current_].recorded) return success();
    return driver_.event_synchronize(areas_[current_].event);
  }

  // Until the stream has done all that is on it. The other area's event may be waited for still.
  Result<void> wait() {
    for (Area& area : areas_) {
      if (area.recorded) {
        TROUPE_TRY(driver_.event_synchronize(area.event));
      }
      area.recorded = false;
    }
    TROUPE_TRY(driver_.record_event(areas_[current_].event, stream_));
    areas_[current_].recorded = true;
    return driver_.event_synchronize(areas_[current_].event);
  }

  Driver& driver_;
  const std::size_t area_bytes_;
  Stream stream_ = 0;
  std::array<Area, 2> areas_;
  std::size_t current_ = 0, filled_ = 0;
  std::vector<UploadPiece> filled_pieces_;  // of the current area, not enqueued yet
  bool copies_ = false;                     // some may be under way
};

// By one area, piece by piece: an adapter's are few, and nobody waits for them.
class Download {
 public:
  Download(Driver& driver, std::size_t longest) : driver_(driver), area_bytes_(std::clamp<std::size_t>(longest, 64, kAreaBytes)) {}
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;
  ~Download() { (void)close(); }

  Result<void> open() {
    TROUPE_TRY(stream_, driver_.create_stream());
    TROUPE_TRY(event_, driver_.create_event());
    TROUPE_TRY(memory_, driver_.alloc_host_pinned(area_bytes_));
    return success();
  }

  Result<void> get(const DownloadPiece& piece) {
    for (std::size_t at = 0; at < piece.bytes;) {
      const std::size_t n = std::min(piece.bytes - at, area_bytes_);
      TROUPE_TRY(driver_.copy_d2h_async(memory_, piece.from + at, n, stream_));
      copying_ = true;
      TROUPE_TRY(wait());
      std::memcpy(static_cast<std::byte*>(piece.to) + at, memory_, n);
      at += n;
    }
    return success();
  }

  // Gives everything back that the driver takes. Called again: what was left.
  Result<void> close() {
    FirstError first;
    if (copying_ && !first.well(wait())) return first.result();
    if (event_ != 0 && first.well(driver_.destroy_event(event_))) event_ = 0;
    if (memory_ != nullptr && first.well(driver_.free_host_pinned(memory_, area_bytes_))) memory_ = nullptr;
    if (stream_ != 0 && first.well(driver_.destroy_stream(stream_))) stream_ = 0;
    return first.result();
  }

 private:
  Result<void> wait() {
    if (!std::exchange(recorded_, true)) {
      if (auto recorded = driver_.record_event(event_, stream_); !recorded) return recorded_ = false, recorded;
    }
    TROUPE_TRY(driver_.event_synchronize(event_));
    recorded_ = copying_ = false;
    return success();
  }

  Driver& driver_;
  const std::size_t area_bytes_;
  Stream stream_ = 0;
  Event event_ = 0;
  void* memory_ = nullptr;
  bool copying_ = false;   // a copy may be under way
  bool recorded_ = false;  // behind it
};

}  // namespace

Result<void> download(Driver& driver, std::span<const DownloadPiece> pieces) {
  std::size_t longest = 0;
  for (const DownloadPiece& piece : pieces) longest = std::max(longest, piece.bytes);
  Download work(driver, longest);
  TROUPE_TRY(work.open());
  for (const DownloadPiece& piece : pieces) {
    TROUPE_TRY(work.get(piece));
  }
  return work.close();
}

Result<void> upload(Driver& driver, std::span<const UploadPiece> pieces) {
  std::size_t total = 0;
  for (const UploadPiece& piece : pieces) total += piece.bytes;
  Upload work(driver, total);
  TROUPE_TRY(work.open());
  for (const UploadPiece& piece : pieces) {
    TROUPE_TRY(work.put(piece));
  }
  TROUPE_TRY(work.flush());
  return work.close();
}

}  // namespace troupe::device
