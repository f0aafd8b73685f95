// troupe trace: reads recordings of messages.
#include <fmt/format.h>
#include <boost/program_options/value_semantic.hpp>

#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "actors/trace/check.h"
#include "actors/trace/diff.h"
#include "actors/trace/replay.h"
#include "tools/trace/html.h"
#include "tools/trace/lines.h"
#include "tools/trace/perfetto.h"
#include "tools/trace/story.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/output.h"

namespace troupe::tools {
namespace {

namespace po = boost::program_options;
using actors::trace::read_recording;
using actors::trace::Recording;

volatile std::sig_atomic_t stopped = 0;
void on_interrupt(int) { stopped = 1; }

// What was said, and how the program ends.
struct Answer {
  std::string text;
  int status = kExitOk;
};

struct Action {
  std::string_view name;
  std::string_view usage;
  std::string_view summary;
  std::size_t n_arguments;
  Result<Answer> (*run)(const Parsed& line);
};

// Says what of the file could not be read.
Result<Recording> open(const std::string& path) {
  auto r = read_recording(path);
  if (!r) return r;
  const Recording& rec = r.value();
  if (!rec.damage.empty()) std::fputs(fmt::format("troupe trace: {}: {}; read up to there\n", path, rec.damage).c_str(), stderr);
  if (rec.damage.empty() && rec.cut_bytes != 0)
    std::fputs(fmt::format("troupe trace: {} is cut off; read up to its last whole block\n", path).c_str(), stderr);
  if (rec.unknown != 0)
    std::fputs(fmt::format("troupe trace: {}: {} messages are of a form that this build does not know\n", path, rec.unknown).c_str(),
               stderr);
  return r;
}

Result<std::uint64_t> number(const std::string& text, const char* what) {
  std::uint64_t x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error == std::errc() && end == text.data() + text.size()) return x;
  return Error{ErrorCode::bad_request, fmt::format("{} must be a number, and is \"{}\"", what, text)};
}

Result<std::uint64_t> message_number(const std::string& text) {
  if (const std::uint64_t seq = actors::parse_seq(text)) return seq;
  return Error{ErrorCode::bad_request,
               fmt::format("\"{}\" names no message: they are called like scheduler:17, as `troupe trace print` shows them", text)};
}

Result<LineFilter> filter_of(const po::variables_map& v) {
  LineFilter f;
  f.receipts = v["receipts"].as<bool>();
  if (v.count("actor") != 0) f.actor = v["actor"].as<std::string>();
  if (v.count("type") != 0) f.type = v["type"].as<std::string>();
  if (v.count("from") != 0) f.from_ms = v["from"].as<double>();
  if (v.count("to") != 0) f.to_ms = v["to"].as<double>();
  if (v.count("step") != 0) {
    TROUPE_TRY(f.step, number(v["step"].as<std::string>(), "--step"));
  }
  if (v.count("request") != 0) {
    const auto& id = v["request"].as<std::string>();
    const std::size_t hash = id.find('#');
    TROUPE_TRY(f.client, number(id.substr(0, hash), "--request"));
    if (hash != std::string::npos) {
      TROUPE_TRY(f.generation, number(id.substr(hash + 1), "--request"));
    }
  }
  return f;
}

// As the file grows, until the program is interrupted.
Result<Answer> follow(const std::string& path, LinePicker picker) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return Error{ErrorCode::io_failed, "cannot read " + path};
  std::signal(SIGINT, on_interrupt);
  actors::trace::Reader reader;
  std::vector<std::uint8_t> piece(1 << 16);
  TimeNs start = 0;
  bool begun = false;
  while (stopped == 0 && reader.damage().empty()) {
    const std::size_t n = std::fread(piece.data(), 1, piece.size(), file.get());
    if (n == 0) {
      std::clearerr(file.get());
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    TROUPE_TRY(reader.feed(piece.data(), n));
    std::string text;
    for (const auto& e : reader.take()) {
      if (!begun) start = e.head.time;
      begun = true;
      if (picker.pick(e, start)) text += line(e, start);
    }
    TROUPE_TRY(write_all(1, text));
  }
  if (!reader.damage().empty()) return Error{ErrorCode::bad_file, path + ": " + reader.damage()};
  return Answer{};
}

Result<Answer> run_print(const Parsed& p) {
  TROUPE_TRY(auto filter, filter_of(p.values));
  LinePicker picker(std::move(filter));
  if (p.values["follow"].as<bool>()) return follow(p.positional[0], std::move(picker));
  TROUPE_TRY(auto r, open(p.positional[0]));
  Answer a;
  const TimeNs start = start_of(r);
  for (const auto& e : r.events)
    if (picker.pick(e, start)) a.text += line(e, start);
  return a;
}

Result<Answer> run_show(const Parsed& p) {
  TROUPE_TRY(const auto seq, message_number(p.positional[1]));
  TROUPE_TRY(auto r, open(p.positional[0]));
  Answer a{show(r, seq), kExitOk};
  if (a.text.empty()) return Error{ErrorCode::not_found, p.positional[1] + " is not in the recording"};
  return a;
}

Result<Answer> run_request(const Parsed& p) {
  TROUPE_TRY(auto r, open(p.positional[0]));
  Answer a{story(r, p.positional[1]), kExitOk};
  if (a.text.empty()) return Error{ErrorCode::not_found, fmt::format("the recording has no request {}", p.positional[1])};
  return a;
}

Result<Answer> run_stats(const Parsed& p) {
  TROUPE_TRY(auto r, open(p.positional[0]));
  return Answer{stats(r), kExitOk};
}

Result<Answer> run_check(const Parsed& p) {
  TROUPE_TRY(auto r, open(p.positional[0]));
  TROUPE_TRY(auto c, actors::trace::check(r));
  Answer a;
  if (!c.note.empty()) a.text += "note: " + c.note + "\n";
  if (c.finding) {
    const auto& e = r.events[c.finding->event];
    const TimeNs start = start_of(r);
    a.text += fmt::format(
        "{} is broken: {}\n{}{}", c.finding->rule, c.finding->what, line(e, start),
        actors::trace::RecordKind::received == e.head.kind && r.sent(e.head.seq) != nullptr ? line(*r.sent(e.head.seq), start) : "");
    a.text += causes(r, e.head.seq, start);
    a.status = kExitFailed;
  } else {
    a.text += fmt::format("the rules hold: {} messages, {} requests, {} tokens\n", c.messages, c.requests, c.tokens);
  }
  return a;
}

Result<Answer> run_diff(const Parsed& p) {
  TROUPE_TRY(auto ra, open(p.positional[0]));
  TROUPE_TRY(auto rb, open(p.positional[1]));
  TROUPE_TRY(auto d, actors::trace::diff(ra, rb));
  Answer a;
  if (d.divergence) {
    const auto& x = *d.divergence;
    a.text += fmt::format("diverged at request {} (in B {}) token {}: {}\n", label(x.a), label(x.b), x.token, x.what);
    if (!x.cause.empty()) a.text += "in B it is " + x.cause + "\n";
    const auto side = [&](const char* name, const Recording& r, std::size_t event) {
      const auto& e = r.events[event];
      a.text += fmt::format("in {}:\n  {}{}", name, line(e, start_of(r)), causes(r, e.head.seq, start_of(r)));
    };
    side("A", ra, x.event_a);
    side("B", rb, x.event_b);
    a.status = kExitFailed;
  } else {
    a.text += fmt::format("same streams: {} requests, {} tokens\n", d.requests, d.tokens);
  }
  if (!d.protocol.empty()) a.text += "the protocol:\n";
  for (const std::string& l : d.protocol) a.text += "  " + l + "\n";
  return a;
}

Result<Answer> run_replay(const Parsed& p) {
  actors::trace::ReplayOptions options;
  if (p.values.count("until") != 0) {
    TROUPE_TRY(options.until, message_number(p.values["until"].as<std::string>()));
  }
  TROUPE_TRY(auto r, open(p.positional[0]));
  const auto begin = std::chrono::steady_clock::now();
  TROUPE_TRY(auto o, actors::trace::replay(r, options));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double real = r.events.empty() ? 0 : static_cast<double>(r.events.back().head.time - r.events.front().head.time) / 1e9;
  Answer a;
  if (!o.note.empty()) a.text += "note: " + o.note + "\n";
  if (o.difference) {
    const auto& e = r.events[o.difference->event];
    a.text += fmt::format("differs: {}\n{}{}", o.difference->what, line(e, start_of(r)), causes(r, e.head.seq, start_of(r)));
    a.status = kExitFailed;
  } else {
    a.text += fmt::format("the same: {} messages taken up, {} of {} sent again; {:.3f} s for what took {:.3f} s\n", o.handled, o.compared,
                          o.recorded, seconds, real);
  }
  if (p.values["state"].as<bool>()) a.text += o.state + "\n";
  return a;
}

Result<Answer> run_perfetto(const Parsed& p) {
  TROUPE_TRY(auto r, open(p.positional[0]));
  return Answer{perfetto(r), kExitOk};
}

Result<Answer> run_html(const Parsed& p) {
  TROUPE_TRY(auto r, open(p.positional[0]));
  return Answer{html(r), kExitOk};
}

constexpr std::array kActions = {
    Action{"print", "FILE", "one line a message", 1, run_print},
    Action{"show", "FILE MESSAGE", "one message in full, its causes, and what it caused", 2, run_show},
    Action{"request", "FILE ID", "the life of one request (7, or 7#2)", 2, run_request},
    Action{"stats", "FILE", "figures: host loop, device, mailboxes, requests", 1, run_stats},
    Action{"check", "FILE", "whether the rules hold; else the first message that breaks one", 1, run_check},
    Action{"diff", "A B", "whether two runs of a workload gave the same streams", 2, run_diff},
    Action{"replay", "FILE", "runs the cores again on what was recorded, and compares", 1, run_replay},
    Action{"perfetto", "FILE", "Chrome trace JSON on stdout, for ui.perfetto.dev", 1, run_perfetto},
    Action{"html", "FILE", "a page on stdout to look through it in a browser", 1, run_html},
};

po::options_description options_of(std::string_view action) {
  po::options_description own(fmt::format("Options of trace {}", action));
  auto add = own.add_options();
  if (action == "print") {
    add("actor", po::value<std::string>()->value_name("NAME"), "sent or taken up by it");
    add("type", po::value<std::string>()->value_name("NAME"), "of this type, as Launch");
    add("request", po::value<std::string>()->value_name("ID"), "about this request (7, or 7#2)");
    add("step", po::value<std::string>()->value_name("N"), "about this step");
    add("from", po::value<double>()->value_name("MS"), "not before");
    add("to", po::value<double>()->value_name("MS"), "not after");
    add("receipts", po::bool_switch(), "when each was taken up, too");
    add("follow,f", po::bool_switch(), "go on as the file grows");
  } else if (action == "replay") {
    add("until", po::value<std::string>()->value_name("MESSAGE"), "stop once this message has been handled");
    add("state", po::bool_switch(), "print what the cores' books say then, as JSON");
  }
  return own;
}

std::string usage() {
  std::string out = "usage: troupe trace ACTION ...\n\n";
  for (const Action& a : kActions) out += fmt::format("  {:<9} {:<13} {}\n", a.name, a.usage, a.summary);
  return out +
         "\nRecordings come from --trace FILE of run, generate and verify, from Runtime::dump_trace, and from the flight\n"
         "recorder when a device is lost.\n\nExit status: 0 done; the rules hold, the streams or the replay are the same; 1 they are not; "
         "2 wrong command line;\n"
         "3 the recording could not be used; 4 the output was closed or could not be written.\n";
}

}  // namespace

int run_trace(const Command&, const std::vector<std::string>& all) {
  std::vector<std::string> args = all;
  std::size_t at = 0;  // of the action: flags of every command may stand before it
  while (at < args.size() && args[at].starts_with("-") && args[at] != "--help" && args[at] != "-h") at += takes_value(args[at]) ? 2 : 1;
  if (at < args.size() && (args[at] == "--help" || args[at] == "-h")) return write_all(1, usage()) ? kExitOk : kExitClosed;
  if (at >= args.size()) {
    std::fputs(usage().c_str(), stderr);
    return kExitUsage;
  }
  const std::string word = args[at];
  args.erase(args.begin() + static_cast<std::ptrdiff_t>(at));
  for (const Action& action : kActions) {
    if (action.name != word) continue;
    const std::string name = fmt::format("trace {}", action.name), line = fmt::format("trace {} [OPTIONS] {}", action.name, action.usage);
    const Command self{name, action.summary, line, "", nullptr};
    auto parsed = parse_command_line(self, args, options_of(action.name), action.n_arguments);
    if (!parsed) return fail(self, parsed.error(), kExitUsage);
    if (parsed.value().help) return kExitOk;
    auto answer = action.run(parsed.value());
    if (!answer) return fail(self, answer.error(), answer.error().code == ErrorCode::bad_request ? kExitUsage : kExitStart);
    const auto written = write_all(1, answer.value().text);
    return written ? answer.value().status : fail(self, written.error(), kExitClosed);
  }
  std::fputs(fmt::format("troupe trace: there is no action \"{}\"; `troupe trace --help` lists them\n", word).c_str(), stderr);
  return kExitUsage;
}

}  // namespace troupe::tools
