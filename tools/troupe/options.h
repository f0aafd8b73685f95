// The command line: what every subcommand shares, and how a subcommand adds its own flags.
#pragma once

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "messages/error.h"

namespace troupe::tools {

// Exit statuses of every subcommand; --help states them.
enum ExitStatus : int {
  kExitOk = 0,
  kExitFailed = 1,  // some request failed; verify: any verdict but `identical`
  kExitUsage = 2,   // the command line is wrong
  kExitStart = 3,   // the model, the input or the runtime could not be used
  kExitClosed = 4,  // the output was closed, or could not be written
};

// "host:0", "cuda:1".
struct DeviceName {
  bool cuda = false;
  std::uint32_t index = 0;
  std::string text() const { return (cuda ? "cuda:" : "host:") + std::to_string(index); }
  bool operator==(const DeviceName&) const = default;
};

struct CommonOptions {
  std::vector<DeviceName> devices{DeviceName{}};  // where there are several, each is a replica; none: those of nodes do it
  std::vector<std::string> nodes;                 // HOST:PORT, each with replicas on another machine
  std::string cert, key, ca;                      // by which this program and nodes know each other
  std::uint32_t link_silence = 3000;              // ms without anything from a node, after which it is taken for gone
  std::string model;                              // path; empty = the default model in the cache
  std::string placement = "least-work";           // of requests on several devices: that, round-robin or pinned
  std::uint32_t depth = 2;                        // most steps in flight
  std::uint32_t max_batch = 32;                   // requests that run at a time
  std::uint32_t kv_blocks = 0;                    // 0 = as many as max_batch sequences of a middling length need
  std::uint32_t block_size = 16;
  std::uint32_t threads = 0;  // of one device; 0 = the host's devices share the CPUs
  bool exact = false;
  bool cublaslt = false;        // CUDA: BF16 products by cuBLASLt; R1 does not hold then
  std::uint32_t streams = 2;    // of a device, at most: RuntimeOptions::streams
  std::uint32_t max_loras = 0;  // adapter slots
  std::uint32_t max_lora_rank = 16;
  std::string spill_dir;             // empty = preempted requests are computed again
  std::uint64_t spill_limit = 4096;  // MiB
  std::uint64_t flight = 64;         // MiB of last messages; 0 = none
  std::string log_level = "warning";
  std::string trace;  // where to record messages; empty = nowhere
  bool trace_redact = false;
};

// One subcommand, as the table in main.cc lists it.
struct Command {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view usage;    // "generate [OPTIONS] PROMPT"
  std::string_view help;     // what --help says after the options
  int (*run)(const Command& self, const std::vector<std::string>& args);
};

// A parsed command line.
struct Parsed {
  CommonOptions common;
  boost::program_options::variables_map values;  // the subcommand's own flags
  std::vector<std::string> positional;
  bool help = false;  // --help was given and has been printed
};

// Parses `args` (without the program's and the subcommand's names) over the common flags, `own` and `hidden` ones that
// help does not show. Exactly `n_positional` other arguments must be there. Error: bad_request, one line.
Result<Parsed> parse_command_line(const Command& command, const std::vector<std::string>& args,
                                  const boost::program_options::options_description& own, std::size_t n_positional,
                                  const boost::program_options::options_description& hidden = {});

// --trace and --trace-redact, for the commands that run a runtime; parse_command_line puts them into CommonOptions.
void add_trace_options(boost::program_options::options_description& own);

// --nodes and what belongs to it, for the commands that can use other machines; likewise.
void add_node_options(boost::program_options::options_description& own);
// --cert, --key and --ca alone.
void add_certificate_options(boost::program_options::options_description& own);

// Whether the word is a common flag that takes its value from the next word.
bool takes_value(std::string_view word);

// What --help says of the flags that all subcommands share.
std::string common_help();

// The file that `tools/dev setup` fetches: in $TROUPE_CACHE, else troupe in the user's cache folder.
std::string default_model_path();

// Prints "troupe NAME: ..." on stderr and returns `status`.
int fail(const Command& command, const Error& error, int status);

}  // namespace troupe::tools
