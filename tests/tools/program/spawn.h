// Runs a program to its end, for tests: what it wrote, and how it ended.
#pragma once

#include <string>
#include <vector>

namespace troupe::tools {

struct Ran {
  int status = -1;  // the exit status; 128 + n: killed by signal n
  std::string out, err;
};

// `input` is the program's stdin. close_output: nobody reads its stdout (the pipe is closed before it starts).
Ran run_program(const std::string& program, std::vector<std::string> args, const std::string& input = "", bool close_output = false);

}  // namespace troupe::tools
