// troupe generate: one prompt, its answer streamed to the terminal.
#include <fmt/format.h>
#include <boost/program_options/value_semantic.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <optional>

#include "tools/troupe/commands.h"
#include "tools/troupe/engine.h"
#include "tools/troupe/output.h"

namespace troupe::tools {
namespace {

namespace po = boost::program_options;
using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t interrupted = 0;
void on_interrupt(int) { interrupted = 1; }

// What the callback hands to the waiting main thread.
struct Stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::string text;  // not yet written
  std::optional<Finish> finish;
  std::uint32_t tokens = 0;
  Clock::time_point first, last;
};

void receive(Stream& stream, const RequestEvent& event) {
  const std::lock_guard lock(stream.mutex);
  stream.text += event.text;
  if (event.token != nullptr) {
    stream.last = Clock::now();
    if (stream.tokens++ == 0) stream.first = stream.last;
  }
  if (event.finish != nullptr) stream.finish = *event.finish;
  stream.changed.notify_one();
}

double ms(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

std::string figures(const Stream& stream, Clock::time_point start) {
  const Finish& finish = *stream.finish;
  std::string out = fmt::format("{} prompt tokens, {} tokens", finish.usage.prompt_tokens, finish.usage.completion_tokens);
  if (stream.tokens > 0) out += fmt::format(", first after {:.0f} ms", ms(stream.first - start));
  if (stream.tokens > 1) out += fmt::format(", then {:.1f} tokens/s", (stream.tokens - 1) * 1000.0 / ms(stream.last - stream.first));
  return out + fmt::format(", ended by {}\n", name(finish.reason));
}

// Writes the stream as it comes. Error: the output is gone (the request is cancelled then).
Result<void> write_stream(Stream& stream, Runtime& runtime) {
  Result<void> written = success();
  bool cancelled = false;
  std::unique_lock lock(stream.mutex);
  for (;;) {
    stream.changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return !stream.text.empty() || stream.finish; });
    const std::string text = std::exchange(stream.text, {});
    const bool last = stream.finish.has_value();
    lock.unlock();
    if (written && !text.empty()) written = write_all(1, text);
    if (!cancelled && !last && (!written || interrupted != 0)) {
      runtime.cancel(1);
      cancelled = true;
    }
    lock.lock();
    if (stream.finish && stream.text.empty()) return written;
  }
}

Result<Request> make_request(const Parsed& line, const device::TextSide& text) {
  const po::variables_map& v = line.values;
  std::string prompt = line.positional[0];
  if (prompt == "-") {
    TROUPE_TRY(prompt, read_all(0, LineReader::kMaxLine));
  }
  Request request;
  request.client = 1;
  if (v["raw"].as<bool>() || !text.has_chat()) {
    TROUPE_TRY(request.prompt, text.encode_prompt(prompt));
  } else {
    std::vector<device::ChatMessage> messages;
    if (v.count("system") != 0) messages.push_back({"system", v["system"].as<std::string>()});
    messages.push_back({"user", prompt});
    TROUPE_TRY(request.prompt, text.encode_chat(messages));
  }
  const auto max_tokens = v["max-tokens"].as<std::int64_t>();
  if (max_tokens < 1 || max_tokens > 0xFFFFFFFF)
    return Error{ErrorCode::bad_request, fmt::format("--max-tokens must be at least 1, and is {}", max_tokens)};
  request.stop.max_tokens = static_cast<std::uint32_t>(max_tokens);
  if (v.count("stop") != 0) request.stop.stop = v["stop"].as<std::vector<std::string>>();
  request.sampling.temperature = v["temperature"].as<float>();
  request.sampling.top_p = v["top-p"].as<float>();
  request.sampling.min_p = v["min-p"].as<float>();
  const auto top_k = v["top-k"].as<std::int64_t>();
  if (top_k < 0 || top_k > 0xFFFFFFFF) return Error{ErrorCode::bad_request, fmt::format("--top-k must not be negative, and is {}", top_k)};
  request.sampling.top_k = static_cast<std::uint32_t>(top_k);
  if (v.count("seed") != 0) request.sampling.seed = v["seed"].as<std::uint64_t>();
  return request;
}

// NAME=DIR
Result<LoraCommand> adapter_of(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    return Error{ErrorCode::bad_request, fmt::format("--adapter must be NAME=DIR, and is {}", text)};
  }
  LoraCommand out;
  out.kind = LoraCommand::Kind::promote_disk;
  out.name = text.substr(0, at);
  out.path = text.substr(at + 1);
  return out;
}

}  // namespace

int run_generate(const Command& self, const std::vector<std::string>& args) {
  po::options_description own("Options of generate");
  auto add = own.add_options();
  add("raw", po::bool_switch(), "continue the prompt as it is, without the chat format");
  add("system", po::value<std::string>()->value_name("TEXT"), "a system message before the prompt");
  add("max-tokens", po::value<std::int64_t>()->default_value(256)->value_name("N"), "most tokens to generate");
  add("temperature", po::value<float>()->default_value(0)->value_name("T"), "0 = always the likeliest token");
  add("top-k", po::value<std::int64_t>()->default_value(0)->value_name("K"), "choose among the K likeliest; 0 = all");
  add("top-p", po::value<float>()->default_value(1)->value_name("P"), "choose among the likeliest that sum up to P");
  add("min-p", po::value<float>()->default_value(0)->value_name("P"), "choose among those at least P times as likely as the likeliest");
  add("seed", po::value<std::uint64_t>()->value_name("N"), "for the same choices again");
  add("adapter", po::value<std::string>()->value_name("NAME=DIR"), "answer with the LoRA adapter in this PEFT folder");
  add("stop", po::value<std::vector<std::string>>()->value_name("TEXT"), "end before this text (may be given more than once)");
  add_trace_options(own);
  add_node_options(own);
  auto parsed = parse_command_line(self, args, own, 1);
  if (!parsed) return fail(self, parsed.error(), kExitUsage);
  if (parsed.value().help) return kExitOk;
  std::optional<LoraCommand> adapter;
  if (parsed.value().values.count("adapter") != 0) {
    auto read = adapter_of(parsed.value().values["adapter"].as<std::string>());
    if (!read) return fail(self, read.error(), kExitUsage);
    adapter = std::move(read).value();
    parsed.value().common.max_loras = std::max(parsed.value().common.max_loras, 1u);
  }
  auto engine = start_engine(parsed.value().common, parsed.value().common.depth);
  if (!engine) return fail(self, engine.error(), kExitStart);
  Runtime& runtime = *engine.value().runtime;
  auto request = make_request(parsed.value(), engine.value().text);
  if (!request) return fail(self, request.error(), kExitFailed);

  if (adapter) {
    request.value().adapter = adapter->name;
    if (auto loaded = runtime.lora(std::move(*adapter)); !loaded) return fail(self, loaded.error(), kExitStart);
  }
  std::signal(SIGINT, on_interrupt);
  Stream stream;
  const Clock::time_point start = Clock::now();
  auto id = runtime.submit(std::move(request).value(), [&stream](const RequestEvent& event) { receive(stream, event); });
  if (!id) return fail(self, id.error(), kExitFailed);
  auto written = write_stream(stream, runtime);
  if (written) written = write_all(1, "\n");
  const auto stopped = runtime.stop();
  if (!written) return fail(self, written.error(), kExitClosed);
  std::fputs(figures(stream, start).c_str(), stderr);
  if (!stopped) return fail(self, stopped.error(), kExitFailed);
  if (stream.finish->reason == FinishReason::error) return fail(self, stream.finish->error, kExitFailed);
  return kExitOk;
}

}  // namespace troupe::tools
