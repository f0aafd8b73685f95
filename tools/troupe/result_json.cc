#include "tools/troupe/result_json.h"

#include <boost/json.hpp>

#include <cmath>

namespace troupe::tools {
namespace {

namespace json = boost::json;

// JSON has no infinity: the log-probability of what cannot happen is null.
json::value to_json(float x) { return std::isfinite(x) ? json::value(static_cast<double>(x)) : json::value(nullptr); }

json::array to_json(const std::vector<TokenBest>& logprobs, const std::vector<Token>& ids) {
  json::array out;
  for (std::size_t i = 0; i < logprobs.size() && i < ids.size(); ++i) {
    json::array best;
    for (const TokenLogprob& b : logprobs[i].best) best.push_back(json::object{{"id", b.id}, {"logprob", to_json(b.logprob)}});
    out.push_back(json::object{{"id", ids[i]}, {"logprob", to_json(logprobs[i].logprob)}, {"best", std::move(best)}});
  }
  return out;
}

json::object to_json(const LoraAck& ack) {
  json::object out{{"name", ack.name}};
  if (ack.slot != 0) out["slot"] = ack.slot, out["generation"] = ack.adapter.generation;
  if (!ack.evicted.empty()) out["evicted"] = ack.evicted;
  if (ack.users != 0) out["users"] = ack.users;
  if (ack.paused_ns != 0) out["paused_ms"] = static_cast<double>(ack.paused_ns) / 1e6;
  if (ack.waited_ns != 0) out["waited_ms"] = static_cast<double>(ack.waited_ns) / 1e6;
  for (const LoraEntry& e : ack.adapters) {
    if (!out.contains("adapters")) out["adapters"] = json::array();
    out["adapters"].as_array().push_back(json::object{{"name", e.name},
                                                      {"slot", e.slot},
                                                      {"generation", e.adapter.generation},
                                                      {"users", e.users},
                                                      {"retired", e.retired},
                                                      {"standard", e.standard}});
  }
  return out;
}

}  // namespace

std::string to_json_line(const RequestOutcome& outcome) {
  json::object out;
  out["id"] = json::parse(outcome.id);
  const bool failed = outcome.error.code != ErrorCode::none;
  if (failed) out["error"] = json::object{{"code", name(outcome.error.code)}, {"message", outcome.error.what}};
  if (outcome.lora) {
    out["lora"] = to_json(*outcome.lora);
  } else if (!failed || !outcome.token_ids.empty()) {
    out["text"] = outcome.text;
    out["token_ids"] = json::array(outcome.token_ids.begin(), outcome.token_ids.end());
    if (!outcome.logprobs.empty()) out["logprobs"] = to_json(outcome.logprobs, outcome.token_ids);
    out["finish"] = name(outcome.finish);
    if (outcome.sampled) out["seed"] = outcome.seed;
    out["usage"] = json::object{{"prompt_tokens", outcome.usage.prompt_tokens},
                                {"completion_tokens", outcome.usage.completion_tokens},
                                {"cached_tokens", outcome.usage.cached_tokens}};
  }
  return json::serialize(out) + '\n';
}

}  // namespace troupe::tools
