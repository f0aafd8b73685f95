#include "actors/trace/recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

namespace troupe::actors::trace {
namespace {

constexpr std::chrono::milliseconds kPause{5};    // between two looks at the lanes while messages pass
constexpr std::chrono::milliseconds kSleep{200};  // at most, once none did for a while
constexpr int kPausesBeforeSleep = 20;
constexpr std::size_t kHelp = 32;  // records at a time

TimeNs now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Error io_error(const std::string& what, const std::string& path) {
  return Error{ErrorCode::io_failed, what + " " + path + ": " + std::strerror(errno)};
}

Result<int> create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);  // it may hold prompts
  if (fd < 0) return io_error("cannot make the recording", path);
  return fd;
}

Result<void> write_all(int fd, const std::uint8_t* data, std::size_t size, const std::string& path) {
  while (size > 0) {
    const ssize_t n = ::write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("cannot write the recording", path);
    data += n;
    size -= static_cast<std::size_t>(n);
  }
  return success();
}

std::uint64_t draw_key() {
  std::random_device entropy;
  return (std::uint64_t{entropy()} << 32 | entropy()) | 1;
}

}  // namespace

Recorder::Recorder(const TraceOptions& options, CoreConfigs configs)
    : options_(options),
      configs_(std::move(configs)),
      flight_(options.flight_bytes),
      writer_([this](const std::uint8_t* block, std::size_t size) { take(block, size); }, options.redact ? draw_key() : 0),
      file_(success()) {}

Result<std::shared_ptr<Recorder>> Recorder::start(const TraceOptions& options, CoreConfigs configs) {
  std::shared_ptr<Recorder> self(new Recorder(options, std::move(configs)));
  if (!options.file.empty()) {
    TROUPE_TRY(self->fd_, create(options.file));
    const std::vector<std::uint8_t> start = encode_file_start(make_header(self->configs_, options.redact));
    TROUPE_TRY(write_all(self->fd_, start.data(), start.size(), options.file));
  }
  self->thread_ = std::thread([recorder = self.get()] { recorder->run(); });
  return self;
}

Recorder::~Recorder() { (void)stop(); }

Lane& Recorder::lane(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return *lanes_.emplace_back(std::make_unique<Lane>(bytes));
}

void Recorder::wake() {
  asleep_.store(false, std::memory_order_relaxed);
  changed_.notify_one();
}

void Recorder::run() {
  pthread_setname_np(pthread_self(), "troupe.trace");
  std::unique_lock lock(mutex_);
  int quiet = 0;
  while (!stopping_) {
    quiet = pass() ? 0 : quiet + 1;
    if (quiet < kPausesBeforeSleep) {
      changed_.wait_for(lock, kPause, [this] { return stopping_; });
      continue;
    }
    // A sender that does not see the flag yet is heard when the time is over.
    asleep_.store(true, std::memory_order_relaxed);
    changed_.wait_for(lock, kSleep, [this] { return stopping_ || !asleep_.load(std::memory_order_relaxed); });
    asleep_.store(false, std::memory_order_relaxed);
  }
}

bool Recorder::drain(Lane& lane, std::size_t most) {
  return lane.drain(
      [this](const RecordHead& head, const void* message, const Lane::Ops& ops) {
        if (message == nullptr) return writer_.received(head);
        RecordHead filled = head;
        ops.write(writer_, filled, message);
      },
      most);
}

void Recorder::help(Lane& lane) {
  if (!options_.file.empty()) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || stopping_) return;
  (void)drain(lane, kHelp);
  writer_.flush();  // gives the payloads back
}

bool Recorder::work() {
  if (!options_.file.empty()) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || stopping_) return false;
  for (const auto& lane : lanes_)
    if (drain(*lane, 1)) return true;
  writer_.flush();
  return false;
}

bool Recorder::pass() {
  for (const auto& lane : lanes_) {
    (void)drain(*lane, SIZE_MAX);
    if (const std::uint64_t lost = lane->take_lost()) {
      lost_.fetch_add(lost, std::memory_order_relaxed);
      writer_.lost(lost, now_ns());
    }
  }
  writer_.flush();
  const bool any = writer_.bytes() != bytes_.load(std::memory_order_relaxed);  // since the last pass, whoever encoded them
  messages_.store(writer_.messages(), std::memory_order_relaxed);
  bytes_.store(writer_.bytes(), std::memory_order_relaxed);
  if (const ErrorCode code = writer_.take_fault(); code != ErrorCode::none) dump_fault(code);
  return any;
}

void Recorder::take(const std::uint8_t* block, std::size_t size) {
  flight_.push(block, size);
  if (fd_ >= 0 && file_) file_ = write_all(fd_, block, size, options_.file);
}

void Recorder::dump_fault(ErrorCode code) {
  if (std::exchange(fault_dumped_, true) || options_.flight_bytes == 0) return;
  std::error_code none;
  const std::string dir = options_.flight_dir.empty() ? std::filesystem::temp_directory_path(none).string() : options_.flight_dir;
  const std::string path = dir + "/troupe-flight-" + std::to_string(::getpid()) + "-" + std::to_string(now_ns() / 1'000'000) +
                           (configs_.part == kWhole ? "" : "-" + part_name(configs_.part)) + ".trace";
  const Result<void> dumped = dump_locked(path);
  const std::string said = dumped ? "the last messages are in " + path + " (see `troupe trace check`)" : dumped.error().what;
  std::fprintf(stderr, "troupe: %s: %s\n", troupe::name(code), said.c_str());
}

Result<void> Recorder::dump_locked(const std::string& path) {
  if (options_.flight_bytes == 0) return Error{ErrorCode::bad_request, "the flight recorder is off (TraceOptions::flight_bytes is 0)"};
  Header header = make_header(configs_, options_.redact);
  header.from_start = flight_.whole();
  const std::vector<std::uint8_t> start = encode_file_start(header);
  TROUPE_TRY(const int fd, create(path));
  Result<void> done = write_all(fd, start.data(), start.size(), path);
  flight_.for_each_piece([&](const std::uint8_t* data, std::size_t size) {
    if (done) done = write_all(fd, data, size, path);
  });
  if (::close(fd) != 0 && done) done = io_error("cannot write the recording", path);
  return done;
}

Result<void> Recorder::dump(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (!stopping_) (void)pass();
  return dump_locked(path);
}

Result<void> Recorder::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  (void)pass();
  if (fd_ >= 0 && ::close(std::exchange(fd_, -1)) != 0 && file_) file_ = io_error("cannot write the recording", options_.file);
  return file_;
}

RecorderFigures Recorder::figures() const {
  return {messages_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed), lost_.load(std::memory_order_relaxed)};
}

}  // namespace troupe::actors::trace
