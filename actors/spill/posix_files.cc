#include "actors/spill/posix_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace troupe::actors {

namespace {

std::string part_name(SeqId seq) { return state_file_name(seq) + ".part"; }

// All of it; an error leaves errno.
bool write_all(int fd, std::span<const std::byte> bytes, off_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
  return true;
}

}  // namespace

Error PosixStateFiles::failed(const char* what, const std::string& name) const {
  return Error{ErrorCode::io_failed, fmt::format("{}/{} cannot be {}: {}", folder_, name, what, std::strerror(errno))};
}

Result<std::shared_ptr<PosixStateFiles>> PosixStateFiles::open(const std::string& folder) {
  const auto failed = [&](ErrorCode code, const std::string& what) {
    return Error{code, fmt::format("the folder for spilled sequences, {}, {}", folder, what)};
  };
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return failed(ErrorCode::io_failed, fmt::format("cannot be made: {}; name another by --spill-dir", std::strerror(errno)));
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return failed(ErrorCode::io_failed, fmt::format("cannot be opened: {}; name another by --spill-dir", std::strerror(errno)));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd);
    return failed(ErrorCode::overloaded, "is in use by another runtime; name another by --spill-dir");
  }
  std::shared_ptr<PosixStateFiles> files(new PosixStateFiles(folder, fd));
  files->remove_leftovers();
  return files;
}

PosixStateFiles::~PosixStateFiles() {
  close_file();
  ::close(folder_fd_);
}

void PosixStateFiles::remove_leftovers() {
  const int fd = ::openat(folder_fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* folder = fd < 0 ? nullptr : ::fdopendir(fd);
  if (folder == nullptr) {
    if (fd >= 0) ::close(fd);
    return;
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(folder))
    if (is_state_file_name(entry->d_name)) names.emplace_back(entry->d_name);
  ::closedir(folder);
  for (const std::string& name : names) {
    const int file = ::openat(folder_fd_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) continue;
    std::byte begin[16];
    struct stat status {};
    const bool plain = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    const ssize_t n = plain ? ::pread(file, begin, sizeof begin, 0) : -1;
    ::close(file);
    if (n > 0 && has_magic(std::span<const std::byte>(begin, static_cast<std::size_t>(n))) && ::unlinkat(folder_fd_, name.c_str(), 0) == 0)
      ++leftovers_;
  }
}

void PosixStateFiles::close_file() {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
  open_seq_ = {};
}

Result<int> PosixStateFiles::opened(SeqId seq, bool whole) {
  if (file_ >= 0 && open_seq_ == seq && open_whole_ == whole) return file_;
  close_file();
  const std::string name = whole ? state_file_name(seq) : part_name(seq);
  file_ = ::openat(folder_fd_, name.c_str(), (whole ? O_RDONLY : O_WRONLY) | O_NOFOLLOW | O_CLOEXEC);
  if (file_ < 0) return failed("opened", name);
  open_seq_ = seq;
  open_whole_ = whole;
  return file_;
}

Result<void> PosixStateFiles::create(SeqId seq) {
  close_file();
  const std::string name = part_name(seq);
  (void)::unlinkat(folder_fd_, name.c_str(), 0);
  file_ = ::openat(folder_fd_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file_ < 0) return failed("made", name);
  open_seq_ = seq;
  open_whole_ = false;
  // A header that is not valid yet, so that what a crash leaves is known as ours.
  StateHeader empty;
  empty.seq = seq;
  if (!write_all(file_, encode(empty), 0)) return failed("written", name);
  return success();
}

Result<void> PosixStateFiles::append(SeqId seq, std::span<const std::byte> bytes) {
  TROUPE_TRY(const int fd, opened(seq, false));
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !write_all(fd, bytes, status.st_size)) return failed("written", part_name(seq));
  return success();
}

Result<void> PosixStateFiles::commit(SeqId seq, const StateHeaderBytes& header) {
  TROUPE_TRY(const int fd, opened(seq, false));
  if (!write_all(fd, header, 0)) return failed("written", part_name(seq));
  close_file();  // the data need not outlive this process, so it is not synced
  if (::renameat(folder_fd_, part_name(seq).c_str(), folder_fd_, state_file_name(seq).c_str()) != 0)
    return failed("renamed", part_name(seq));
  return success();
}

Result<std::uint64_t> PosixStateFiles::size(SeqId seq) {
  TROUPE_TRY(const int fd, opened(seq, true));
  struct stat status {};
  if (::fstat(fd, &status) != 0) return failed("asked for its size", state_file_name(seq));
  return static_cast<std::uint64_t>(status.st_size);
}

Result<void> PosixStateFiles::read(SeqId seq, std::uint64_t offset, std::span<std::byte> to) {
  TROUPE_TRY(const int fd, opened(seq, true));
  while (!to.empty()) {
    const ssize_t n = ::pread(fd, to.data(), to.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("read", state_file_name(seq));
    if (n == 0) return Error{ErrorCode::bad_file, fmt::format("{}/{} ends too early", folder_, state_file_name(seq))};
    to = to.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return success();
}

void PosixStateFiles::remove(SeqId seq) {
  if (open_seq_ == seq) close_file();
  (void)::unlinkat(folder_fd_, state_file_name(seq).c_str(), 0);
  (void)::unlinkat(folder_fd_, part_name(seq).c_str(), 0);
}

}  // namespace troupe::actors
