// Between the host's memory and a device's, while a model or an adapter is loaded or read: by way of two page-locked areas, so that one is
// filled while the other is copied. Uses a stream, events and areas of its own, and waits; never on a path of a step.
//
// Thread: the caller's, which has bound its device; another may run steps meanwhile.
#pragma once

#include <cstddef>
#include <span>

#include "device/driver.h"
#include "messages/error.h"

namespace troupe::device {

struct UploadPiece {
  DevicePtr to = 0;
  const void* from = nullptr;  // any memory
  std::size_t bytes = 0;
};

// Returns when all is there. An error: what the driver said; some of it may be there, and no copy is under way, unless the
// driver would not say so twice: then what this used stays the driver's until its end.
Result<void> upload(Driver& driver, std::span<const UploadPiece> pieces);

struct DownloadPiece {
  void* to = nullptr;  // any memory
  DevicePtr from = 0;
  std::size_t bytes = 0;
};

// The other way round; likewise.
Result<void> download(Driver& driver, std::span<const DownloadPiece> pieces);

}  // namespace troupe::device
