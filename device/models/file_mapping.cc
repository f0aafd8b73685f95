#include "device/models/file_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace troupe::device {

Result<FileMapping> map_file(const std::string& path) {
  const auto failed = [&](const char* what) {
    return Error{ErrorCode::io_failed, path + ": " + what + ": " + std::system_category().message(errno)};
  };
  struct Fd {
    int fd;
    ~Fd() {
      if (fd >= 0) ::close(fd);
    }
  } file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return failed("cannot be opened");
  struct stat st {};
  if (::fstat(file.fd, &st) != 0) return failed("cannot be examined");
  if (!S_ISREG(st.st_mode)) return Error{ErrorCode::io_failed, path + ": is not a regular file"};
  const auto size = static_cast<std::size_t>(st.st_size);
  if (size == 0) return Error{ErrorCode::bad_file, path + ": is empty"};
  void* p = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (p == MAP_FAILED) return failed("cannot be mapped into memory");
  const auto unmap = [size](const std::byte* m) { ::munmap(const_cast<std::byte*>(m), size); };
  return FileMapping{std::shared_ptr<const std::byte>(static_cast<const std::byte*>(p), unmap), size};
}

}  // namespace troupe::device
