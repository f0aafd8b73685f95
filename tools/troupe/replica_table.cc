#include "tools/troupe/replica_table.h"

#include <fmt/format.h>
#include <boost/json.hpp>

#include <algorithm>

namespace troupe::tools {
namespace {

namespace json = boost::json;

constexpr std::size_t kBar = 10;  // characters

std::uint64_t number(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  if (v == nullptr) return 0;
  if (v->is_uint64()) return v->as_uint64();
  return v->is_int64() ? static_cast<std::uint64_t>(std::max<std::int64_t>(v->as_int64(), 0)) : 0;
}
std::string text(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  return v != nullptr && v->is_string() ? std::string(v->as_string()) : std::string();
}

ReplicaRow row_of(const json::object& o) {
  ReplicaRow r;
  r.name = text(o, "name");
  r.state = text(o, "state");
  r.error = text(o, "error");
  r.life = number(o, "incarnation");
  r.running = number(o, "running");
  r.waiting = number(o, "waiting");
  r.outstanding = number(o, "outstanding_tokens");
  r.steps = number(o, "steps");
  r.steps_ahead = number(o, "steps_ahead");
  r.tokens = number(o, "tokens");
  if (const json::value* f = o.if_contains("facts"); f != nullptr && f->is_object()) {
    r.used_blocks = number(f->as_object(), "used_blocks") + number(f->as_object(), "fenced_blocks");
    r.total_blocks = number(f->as_object(), "total_blocks");
  }
  if (const json::value* a = o.if_contains("adapters"); a != nullptr && a->is_array()) {
    for (const json::value& one : a->as_array())
      if (one.is_string()) r.adapters.emplace_back(one.as_string());
  }
  return r;
}

std::string bar(std::uint64_t used, std::uint64_t total) {
  if (total == 0) return fmt::format("{:>{}}", "-", kBar + 7);
  const std::uint64_t full = std::min<std::uint64_t>((used * kBar + total - 1) / total, kBar);
  return fmt::format("[{}{}] {:>3} %", std::string(full, '#'), std::string(kBar - full, '.'), used * 100 / total);
}

// What was counted since the earlier sample; of a life that began in between, all of it.
struct Since {
  std::uint64_t steps = 0, ahead = 0, tokens = 0;
};
Since since(const ReplicaRow& now, const ReplicaSample* before) {
  Since out{now.steps, now.steps_ahead, now.tokens};
  if (before == nullptr) return out;
  const auto it = std::find_if(before->replicas.begin(), before->replicas.end(), [&](const ReplicaRow& r) { return r.name == now.name; });
  if (it == before->replicas.end() || it->life != now.life || it->steps > now.steps || it->tokens > now.tokens) return out;
  return {now.steps - it->steps, now.steps_ahead - std::min(it->steps_ahead, now.steps_ahead), now.tokens - it->tokens};
}

std::string per_second(std::uint64_t n, const ReplicaSample* before, double seconds) {
  return before == nullptr || seconds <= 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(n) / seconds);
}

// Cut so that no character is parted.
std::string cut(std::string line, std::size_t width) {
  std::size_t characters = 0, at = 0;
  for (; at < line.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(line[at]) & 0xC0) != 0x80;
    if (begins && characters++ == width) break;
  }
  line.resize(at);
  return line;
}

}  // namespace

Result<ReplicaSample> parse_replicas(std::string_view body) {
  boost::system::error_code bad;
  const json::value parsed = json::parse(body, bad);
  const auto* object = bad ? nullptr : parsed.if_object();
  const json::value* list = object != nullptr ? object->if_contains("replicas") : nullptr;
  if (list == nullptr || !list->is_array()) {
    return Error{ErrorCode::io_failed, "the answer does not say what replicas there are; is it `troupe serve` there?"};
  }
  ReplicaSample out;
  out.model = text(*object, "model");
  out.running = number(*object, "running");
  out.waiting = number(*object, "waiting");
  out.unplaced = number(*object, "unplaced");
  out.tokens = number(*object, "tokens");
  for (const json::value& replica : list->as_array())
    if (replica.is_object()) out.replicas.push_back(row_of(replica.as_object()));
  return out;
}

std::vector<std::string> replica_table(const ReplicaSample& now, const ReplicaSample* before, double seconds, std::size_t width) {
  std::vector<std::string> out;
  std::size_t name = 7;
  for (const ReplicaRow& r : now.replicas) name = std::max(name, r.name.size());
  const std::uint64_t tokens = before == nullptr || before->tokens > now.tokens ? 0 : now.tokens - before->tokens;
  out.push_back(fmt::format("{}   running {}   waiting {}   on no replica {}   {} tokens/s", now.model, now.running, now.waiting,
                            now.unplaced, per_second(tokens, before, seconds)));
  out.push_back(fmt::format("{:<{}}  {:<8} {:>5} {:>5}  {:<17} {:>6} {:>9} {:>9} {:>4}  {}", "REPLICA", name, "STATE", "BATCH", "QUEUE",
                            "KV", "AHEAD", "TOKENS/S", "WORK", "LIFE", "ADAPTERS"));
  for (const ReplicaRow& r : now.replicas) {
    const Since s = since(r, before);
    const std::string ahead = s.steps == 0 ? "-" : fmt::format("{} %", s.ahead * 100 / s.steps);
    out.push_back(fmt::format("{:<{}}  {:<8} {:>5} {:>5}  {:<17} {:>6} {:>9} {:>9} {:>4}  {}", r.name, name, r.state, r.running, r.waiting,
                              bar(r.used_blocks, r.total_blocks), ahead, per_second(s.tokens, before, seconds), r.outstanding, r.life,
                              fmt::join(r.adapters, ", ")));
    if (!r.error.empty() && r.state != "up") out.push_back(fmt::format("{:<{}}  {}", "", name, r.error));
  }
  for (std::string& line : out) {
    while (line.ends_with(' ')) line.pop_back();
    line = cut(std::move(line), width);
  }
  return out;
}

}  // namespace troupe::tools
