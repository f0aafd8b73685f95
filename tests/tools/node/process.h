// A program that runs beside the test: started, watched, killed.
#pragma once

#include <string>
#include <vector>

namespace troupe::tools {

class Process {
 public:
  Process(const std::string& program, std::vector<std::string> args);
  ~Process();  // SIGKILL, if it still runs
  Process(const Process&) = delete;

  int pid() const { return pid_; }
  std::string line();   // of its stdout, without the end; "" at its end
  int end(int signal);  // sends it and waits: the exit status, 128 + n: it was killed by n
  bool runs();

 private:
  int pid_ = -1;
  int out_ = -1;
  int status_ = -1;
};

}  // namespace troupe::tools
