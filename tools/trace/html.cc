#include "tools/trace/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/trace/lines.h"
#include "tools/trace/spans.h"

namespace troupe::tools {

using namespace actors;
using namespace actors::trace;

namespace {

constexpr std::size_t kMostText = 2000;  // of a message in full
constexpr std::array kTracks = {Sender::runtime, Sender::dispatcher,     Sender::scheduler,   Sender::router,  Sender::sampler,
                                Sender::stream,  Sender::prefill_stream, Sender::copy_stream, Sender::driver,  Sender::device,
                                Sender::spill,   Sender::lora,           Sender::loader,      Sender::delivery};

// The page, before and after its data.
constexpr std::string_view kPage[] = {
#include "tools/trace/html_page.inc"
};

std::string quoted(std::string text) {
  if (text.size() > kMostText) text = text.substr(0, kMostText) + " ...";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F || c == '"' || c == '\\' || c == '<')
      out += fmt::format("\\u{:04x}", byte);
    else
      out += c;
  }
  return out + '"';
}

std::size_t track(Sender s) {
  const auto it = std::find(kTracks.begin(), kTracks.end(), s);
  return it == kTracks.end() ? 0 : static_cast<std::size_t>(it - kTracks.begin());
}

}  // namespace

std::string html(const Recording& r, std::size_t most) {
  const TimeNs start = start_of(r);
  const auto us = [&](TimeNs t) { return static_cast<double>(t - start) / 1e3; };
  const Spans spans = spans_of(r);
  std::vector<const Event*> sent;
  std::array<bool, kTracks.size()> used{};
  for (const Event& e : r.events) {
    if (e.head.kind != RecordKind::sent) continue;
    sent.push_back(&e);
    used[track(e.head.from.sender)] = used[track(e.head.to.sender)] = true;
  }
  std::string data = "{\"actors\":[";
  for (std::size_t i = 0; i < kTracks.size(); ++i) data += fmt::format("{}\"{}\"", i == 0 ? "" : ",", name(kTracks[i]));
  data += "],\"used\":[";
  for (std::size_t i = 0; i < kTracks.size(); ++i) data += fmt::format("{}{}", i == 0 ? "" : ",", used[i]);
  data += fmt::format("],\"total\":{},\"messages\":[", sent.size());
  const std::size_t first = sent.size() > most ? sent.size() - most : 0;
  for (std::size_t i = first; i < sent.size(); ++i) {
    const RecordHead& h = sent[i]->head;
    const auto handled = spans.handled_at.find(h.seq);
    std::string span = "null,null";
    if (handled != spans.handled_at.end())
      span = fmt::format("{:.3f},{:.3f}", us(spans.handled[handled->second].begin), us(spans.handled[handled->second].end));
    data += fmt::format("{}\n[{:.3f},{},{},{},{},{},{},{},{}]", i == first ? "" : ",", us(h.time), quoted(seq_label(h.seq)),
                        track(h.from.sender), track(h.to.sender), quoted(type_name(h.type)), quoted(label(sent[i]->message)),
                        quoted(seq_label(h.cause)), span, quoted(dump(sent[i]->message)));
  }
  data += "],\"steps\":[";
  const TimeNs shown = first < sent.size() ? sent[first]->head.time : 0;
  const char* comma = "";
  for (const DeviceSpan& s : spans.device) {
    if (s.end < shown) continue;
    data += fmt::format("{}\n[{:.3f},{:.3f},{},{}]", std::exchange(comma, ","), us(s.begin), us(s.end), quoted(s.name),
                        quoted(seq_label(s.work)));
  }
  return std::string(kPage[0]) + data + "]}" + std::string(kPage[1]);
}

}  // namespace troupe::tools
