// troupe run: a file of requests -> a line of result each.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "tools/troupe/commands.h"
#include "tools/troupe/engine.h"
#include "tools/troupe/output.h"
#include "tools/troupe/result_json.h"
#include "tools/troupe/runner.h"

namespace troupe::tools {
namespace {

using Clock = std::chrono::steady_clock;

// One line on the terminal that is rewritten at most ten times a second.
class Progress {
 public:
  explicit Progress(bool on) : on_(on) {}
  void show(std::uint64_t done, std::uint64_t failed, std::uint64_t tokens) {
    const Clock::time_point now = Clock::now();
    if (!on_ || now - shown_ < std::chrono::milliseconds(100)) return;
    shown_ = now;
    std::fputs(line(done, failed, tokens).c_str(), stderr);
  }
  void end(std::uint64_t done, std::uint64_t failed, std::uint64_t tokens) {
    if (on_) std::fputs((line(done, failed, tokens) + '\n').c_str(), stderr);
  }

 private:
  std::string line(std::uint64_t done, std::uint64_t failed, std::uint64_t tokens) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    return fmt::format("\r\x1b[K{} requests done, {} failed, {} tokens, {:.1f} tokens/s", done, failed, tokens,
                       static_cast<double>(tokens) / seconds);
  }
  bool on_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_{};
};

// Until the input ends or `stop` interrupts it. Error: the input could not be read to its end.
Result<void> read_requests(LineReader& reader, Runner& runner) {
  std::string line;
  for (;;) {
    TROUPE_TRY(bool more, reader.next(line));
    if (!more) return success();
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::visit([&](auto&& item) { runner.add(std::forward<decltype(item)>(item)); },
               parse_request_line(line, fmt::format("{}:{}", reader.name(), reader.number())));
  }
}

}  // namespace

int run_requests(const Command& self, const std::vector<std::string>& args) {
  boost::program_options::options_description own("Options of run");
  add_trace_options(own);
  add_node_options(own);
  auto parsed = parse_command_line(self, args, own, 1);
  if (!parsed) return fail(self, parsed.error(), kExitUsage);
  if (parsed.value().help) return kExitOk;
  auto reader = LineReader::open(parsed.value().positional[0]);
  if (!reader) return fail(self, reader.error(), kExitStart);
  auto engine = start_engine(parsed.value().common, parsed.value().common.depth);
  if (!engine) return fail(self, engine.error(), kExitStart);

  std::uint64_t done = 0, failed = 0;
  Result<void> written = success();
  Progress progress(::isatty(STDERR_FILENO) != 0);
  Runner* running = nullptr;
  Runner runner(
      *engine.value().runtime, [&](const RequestLine& line) { return prompt_ids(engine.value().text, line); },
      [&](const RequestOutcome& outcome) {
        ++done;
        if (outcome.error.code != ErrorCode::none) ++failed;
        written = write_all(STDOUT_FILENO, to_json_line(outcome));
        progress.show(done, failed, running->tokens());
        return written.has_value();
      });
  running = &runner;
  Result<void> read = success();
  std::thread input([&] {
    read = read_requests(reader.value(), runner);
    runner.close();
  });
  runner.run();
  reader.value().interrupt();
  input.join();
  progress.end(done, failed, runner.tokens());
  const auto stopped = engine.value().runtime->stop();
  if (!written) return fail(self, written.error(), kExitClosed);
  if (!read) return fail(self, read.error(), kExitStart);
  if (!stopped) return fail(self, stopped.error(), kExitFailed);
  return failed == 0 ? kExitOk : kExitFailed;
}

}  // namespace troupe::tools
