// Maps a file into memory, read-only. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "messages/error.h"

namespace troupe::device {

struct FileMapping {
  std::shared_ptr<const std::byte> data;  // unmapped with its last owner
  std::size_t bytes = 0;                  // at least 1
  std::span<const std::byte> span() const { return {data.get(), bytes}; }
};

// io_failed: it cannot be opened or mapped, or is no regular file; bad_file: it is empty.
Result<FileMapping> map_file(const std::string& path);

}  // namespace troupe::device
