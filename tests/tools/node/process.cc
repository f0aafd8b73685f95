#include "tests/tools/node/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

extern char** environ;

namespace troupe::tools {
namespace {

int decode(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

Process::Process(const std::string& program, std::vector<std::string> args) {
  int out[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  args.insert(args.begin(), program);
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  if (::posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
  posix_spawn_file_actions_destroy(&actions);
  ::close(out[1]);
  out_ = out[0];
}

Process::~Process() {
  if (runs()) (void)end(SIGKILL);
  if (out_ >= 0) ::close(out_);
}

std::string Process::line() {
  std::string text;
  char c = 0;
  while (::read(out_, &c, 1) == 1 && c != '\n') text += c;
  return text;
}

bool Process::runs() {
  if (pid_ < 0 || status_ >= 0) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return true;
  status_ = decode(status);
  return false;
}

int Process::end(int signal) {
  if (pid_ < 0 || status_ >= 0) return status_;
  ::kill(pid_, signal);
  int status = 0;
  if (::waitpid(pid_, &status, 0) == pid_) status_ = decode(status);
  return status_;
}

}  // namespace troupe::tools
