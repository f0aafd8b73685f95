#include "tools/troupe/dump_signal.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <thread>

namespace troupe::tools {
namespace {

sigset_t dump_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

struct DumpOnSignal::Impl {
  const Runtime& runtime;
  std::atomic<bool> stop{false};
  std::thread thread;

  void run() {
    const sigset_t set = dump_signal();
    for (unsigned n = 1; !stop;) {
      int signal = 0;
      if (::sigwait(&set, &signal) != 0 || stop) continue;
      std::error_code none;
      const std::string path =
          (std::filesystem::temp_directory_path(none) / fmt::format("troupe-flight-{}-{}.trace", ::getpid(), n++)).string();
      const Result<void> dumped = runtime.dump_trace(path);
      std::fputs(fmt::format("troupe: {}\n", dumped ? "the last messages are in " + path : dumped.error().what).c_str(), stderr);
    }
  }
};

void DumpOnSignal::block() {
  const sigset_t set = dump_signal();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

DumpOnSignal::DumpOnSignal(const Runtime& runtime) : impl_(new Impl{runtime, {}, {}}) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

DumpOnSignal::~DumpOnSignal() {
  impl_->stop = true;
  ::pthread_kill(impl_->thread.native_handle(), SIGUSR1);
  impl_->thread.join();
}

}  // namespace troupe::tools
