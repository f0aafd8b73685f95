// The program: finds the subcommand and runs it.
#include <fmt/format.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tools/troupe/commands.h"
#include "tools/troupe/output.h"

namespace troupe::tools {
namespace {

constexpr std::string_view kExits =
    "Exit status: 0 done; 1 failed (the message says what); 2 wrong command line; 3 the model, the input or the\n"
    "runtime could not be used; 4 the output was closed or could not be written.\n";

constexpr std::string_view kRunHelp =
    R"(FILE has one request a line, a JSON object; - is stdin. Fields:
  id                  a string or an integer; requests that are live at a time need different ones
  prompt | prompt_ids | messages
                      text, token ids, or a chat as [{"role": "user", "content": "..."}]; exactly one of them
  max_tokens (16), min_tokens (0), ignore_eos (false)
  stop                a text or a list of texts, none of which appears in the result
  stop_token_ids      ids that end the result and do not belong to it
  temperature (0), top_k (0 = off), top_p (1), min_p (0), seed
  repetition_penalty (1), presence_penalty (0), frequency_penalty (0), logit_bias {"id": bias}
  logprobs            log-probabilities of the chosen token and of that many best ones
  think               {"close": id, "bar": [id, id]}: once close was generated, the other two are barred
  adapter             the name of a LoRA adapter; none: the base model, or what `rotate` named last
  arrive_ms           when to submit it, after the start
  cancel_ms, cancel_after_tokens, deadline_ms
                      when to end it, after its submission
Between them may stand LoRA commands (with --max-loras above 0), which a request behind them sees the outcome of:
  lora                {"load": {"name": "pirate", "dir": "adapters/pirate"}}, with "slot" to say where;
                      {"unload": "pirate"}; {"rotate": "pirate"}, the adapter of requests that name none; {"list": true};
                      beside these "max_wait_ms", and "preempt": true for what happens then to users that are left
  at_ms               when, after the start
  id                  of the line that says what came of it (may be left out)
Each request gives one line on stdout as it finishes: id, text, token_ids, logprobs, finish (stop, length, cancelled,
deadline), usage; or id and error.

Exit status: 0 every request finished; 1 some request or line failed (its line says why; the others went on); 2 wrong
command line; 3 the model, the input or the runtime could not be used; 4 the output was closed or could not be written.
)";

constexpr std::string_view kVerifyHelp =
    R"(FILE is a request file as for `troupe run`. It is run at depth 1, at depth 1 again (the control), and at --depth, there on
all --devices (before on the first one alone), and
the streams are compared byte for byte; a request that was ended by a cancel or a deadline compares as a prefix. The
last line on stdout is the verdict:
  identical                        the streams are equal, and steps ran ahead
  vacuous                          they are equal, but nothing ran ahead
  control diverged                 the two runs at depth 1 differ: depth is not what makes the difference
  diverged at request R token K    the first difference

Exit status: 0 identical; 1 any other verdict; 2 wrong command line; 3 the model, the workload or the runtime could not
be used; 4 the output was closed or could not be written.
)";

constexpr std::string_view kServeHelp =
    R"(OpenAI's API: /v1/models, /v1/completions and /v1/chat/completions, whole or streamed; beside it /tokenize,
/detokenize, /health, /metrics (Prometheus), /replicas and /debug/state. Writes "listening at URL" once it does. SIGTERM and SIGINT
let what runs come to its end, within --drain seconds; a second one ends the program at once.

Exit status: 0 stopped, and every request was complete; 1 some were cut off; 2 wrong command line; 3 the model, a file,
the address or the runtime could not be used; 4 the output was closed.
)";

constexpr std::string_view kNodeHelp =
    R"(Has a replica for each device, for `troupe run --nodes` and `troupe serve --nodes` on other machines: one at a time has them.
Both sides show a certificate that --ca signed, or nothing is heard of them; any such certificate will do, for a node or for its
clients, so let that CA sign nothing else. Folders of adapters are this machine's. Writes "listening at HOST:PORT" once it does.
SIGTERM and SIGINT end it: its requests go on elsewhere.

Exit status: 0 stopped; 1 something was not given back; 2 wrong command line, also without certificates; 3 the model, a file or
the address could not be used; 4 the output was closed.
)";

constexpr std::array kCommands = {
    Command{"generate", "Answers one prompt, streamed to stdout; figures on stderr.", "generate [OPTIONS] PROMPT   (- reads it from stdin)",
            kExits, run_generate},
    Command{"run", "Runs a file of requests; one line of result each.", "run [OPTIONS] FILE", kRunHelp, run_requests},
    Command{"serve", "Serves OpenAI's API over HTTP.", "serve [OPTIONS]", kServeHelp, run_serve},
    Command{"node", "Has replicas for runtimes on other machines.", "node --cert FILE --key FILE --ca FILE [OPTIONS]", kNodeHelp, run_node},
    Command{"lora", "Lists, loads and unloads the LoRA adapters of a running server.",
            "lora list | load NAME FOLDER | unload NAME   [OPTIONS]", kExits, run_lora},
    Command{"status", "Says how the replicas of a running server are.", "status [--json] [OPTIONS]", kExits, run_status},
    Command{"top", "Shows the replicas of a running server, live.", "top [OPTIONS]", kExits, run_top},
    Command{"drain", "Takes a replica of a running server out of service, once its requests are done.", "drain REPLICA [OPTIONS]", kExits,
            run_drain},
    Command{"undrain", "Takes it back into service.", "undrain REPLICA [OPTIONS]", kExits, run_undrain},
    Command{"verify", "Shows that running ahead changes no token of a workload.", "verify [OPTIONS] FILE", kVerifyHelp, run_verify},
    Command{"trace", "Reads recordings of messages: print, check, diff, replay and more.", "trace ACTION ...", kExits, run_trace},
    Command{"tokenize", "Text on stdin -> {\"ids\": [...]} on stdout.", "tokenize [OPTIONS]", kExits, run_tokenize},
    Command{"logits", "Writes the logits of every position of a list of ids.", "logits [OPTIONS] --ids 1,2,3 --out FILE", kExits,
            run_logits},
    Command{"info", "Describes the model, the device and the CPU.", "info [OPTIONS]", kExits, run_info},
};

std::string usage() {
  std::string out = "usage: troupe COMMAND [OPTIONS] ...\n\n";
  for (const Command& c : kCommands) out += fmt::format("  {:<10} {}\n", c.name, c.summary);
  return out + "\n`troupe COMMAND --help` says more.\n\n" + common_help() + '\n' + std::string(kExits);
}

// The first word that is neither a flag nor a flag's value names the command; flags may stand before it.
int run(std::vector<std::string> args) {
  std::size_t at = 0;
  while (at < args.size() && args[at].starts_with("-") && args[at] != "--help" && args[at] != "-h") at += takes_value(args[at]) ? 2 : 1;
  if (at < args.size() && (args[at] == "--help" || args[at] == "-h" || args[at] == "help")) {
    return write_all(1, usage()) ? kExitOk : kExitClosed;
  }
  if (at >= args.size()) {
    std::fputs(usage().c_str(), stderr);
    return kExitUsage;
  }
  for (const Command& command : kCommands) {
    if (command.name != args[at]) continue;
    args.erase(args.begin() + static_cast<std::ptrdiff_t>(at));
    return command.run(command, args);
  }
  std::fputs(fmt::format("troupe: there is no command \"{}\"; `troupe --help` lists them\n", args[at]).c_str(), stderr);
  return kExitUsage;
}

}  // namespace
}  // namespace troupe::tools

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed output is an error value (write_all)
  try {
    return troupe::tools::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "troupe: %s\n", e.what());
    return troupe::tools::kExitStart;
  }
}
