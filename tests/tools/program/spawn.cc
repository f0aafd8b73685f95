#include "tests/tools/program/spawn.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

extern char** environ;

namespace troupe::tools {
namespace {

std::string read_to_end(int fd) {
  std::string out;
  char chunk[4096];
  for (ssize_t n = 0; (n = ::read(fd, chunk, sizeof chunk)) > 0;) out.append(chunk, static_cast<std::size_t>(n));
  ::close(fd);
  return out;
}

}  // namespace

Ran run_program(const std::string& program, std::vector<std::string> args, const std::string& input, bool close_output) {
  std::signal(SIGPIPE, SIG_IGN);
  int in[2], out[2], err[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err[1], 2);
  if (close_output) ::close(out[0]);
  args.insert(args.begin(), program);
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int spawned = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  ::close(err[1]);
  Ran ran;
  std::thread writer([&] {
    for (std::size_t at = 0; at < input.size();) {
      const ssize_t n = ::write(in[1], input.data() + at, input.size() - at);
      if (n <= 0) break;
      at += static_cast<std::size_t>(n);
    }
    ::close(in[1]);
  });
  std::thread reader([&] {
    if (!close_output) ran.out = read_to_end(out[0]);
  });
  ran.err = read_to_end(err[0]);
  writer.join();
  reader.join();
  int status = 0;
  if (spawned != 0 || ::waitpid(pid, &status, 0) != pid) return ran;
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

}  // namespace troupe::tools
