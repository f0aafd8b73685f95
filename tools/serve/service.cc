#include "tools/serve/service.h"

#include <fmt/format.h>
#include <boost/json.hpp>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

namespace troupe::serve {
namespace {

namespace json = boost::json;
inline auto ok() { return BOOST_OUTCOME_V2_NAMESPACE::success(); }

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string draw_stem() {
  std::random_device entropy;
  return fmt::format("{:08x}{:08x}", entropy(), entropy());
}

std::vector<device::ChatMessage> to_chat(const std::vector<ApiMessage>& messages) {
  std::vector<device::ChatMessage> out;
  for (const ApiMessage& m : messages) out.push_back({m.role, m.content});
  return out;
}

template <class T>
ApiResult<T> in_field(Result<T> result, const char* field) {
  if (result) return std::move(result).value();
  ApiError error = from_runtime(result.error());
  error.param = field;
  return error;
}

json::object to_json(const DeviceFacts& f) {
  return {{"total_blocks", f.total_blocks},   {"free_blocks", f.free_blocks},     {"used_blocks", f.used_blocks},
          {"cached_blocks", f.cached_blocks}, {"fenced_blocks", f.fenced_blocks}, {"total_slots", f.total_slots},
          {"free_slots", f.free_slots},       {"in_flight", f.in_flight}};
}

ApiError no_answer() { return {503, "server_error", "the runtime's control thread does not answer; restart the server", "", "stuck"}; }

// An answer that is not streamed is put together in memory: about a KiB for each of these.
constexpr std::uint64_t kMaxLogprobEntries = 1 << 18;

double to_seconds(TimeNs t) { return static_cast<double>(t) * 1e-9; }

struct Serving {
  std::size_t of = 0, up = 0;
  std::string why;  // the others do not
};
Serving serving_of(const std::vector<ReplicaStatus>& replicas) {
  Serving out{replicas.size(), 0, ""};
  for (const ReplicaStatus& r : replicas) {
    if (r.state == ReplicaState::up) {
      ++out.up;
      continue;
    }
    if (!out.why.empty()) out.why += "; ";
    out.why += r.name + " is " + name(r.state);
    if (r.error.code != ErrorCode::none) out.why += " (" + r.error.what + ")";
  }
  return out;
}

json::object to_json(const ReplicaStatus& r) {
  json::object out{{"index", r.replica.index},
                   {"incarnation", r.replica.incarnation},
                   {"name", r.name},
                   {"state", name(r.state)},
                   {"arithmetic", r.arithmetic_id},
                   {"live", r.live},
                   {"outstanding_tokens", r.outstanding},
                   {"running", r.report.running},
                   {"waiting", r.report.waiting},
                   {"in_flight", r.report.in_flight},
                   {"steps", r.report.steps},
                   {"steps_ahead", r.report.steps_ahead},
                   {"settled", r.report.settled},
                   {"tokens", r.report.tokens},
                   {"since_last_settled", to_seconds(r.report.since_settled)},
                   {"facts", to_json(r.report.facts)},
                   {"adapters", json::array(r.adapters.begin(), r.adapters.end())},
                   {"tries", r.tries}};
  if (r.error.code != ErrorCode::none) out["error"] = r.error.what;
  return out;
}

}  // namespace

// The calls that live, and who counts them.
class Service::Books final : public CallObserver {
 public:
  explicit Books(Metrics& metrics) : metrics_(metrics) {}

  void add(std::shared_ptr<Call> call) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t key = call->client_base();
    live_.emplace(key, std::move(call));
  }
  void on_token(double since_submit, std::optional<double> since_last) override { metrics_.token(since_submit, since_last); }
  void on_finish(const Finish& finish, std::uint32_t tokens, double since_submit, bool abandoned) override {
    if (finish.reason == FinishReason::error && finish.error.code == ErrorCode::device_lost) lost_ = true;
    metrics_.finished(finish, tokens, since_submit, abandoned);
  }
  void on_done(std::uint64_t call) override {
    const std::lock_guard lock(mutex_);
    live_.erase(call);
  }
  struct Count {
    std::size_t calls = 0, abandoned = 0;
  };
  Count count() const {
    const std::lock_guard lock(mutex_);
    Count out{live_.size(), 0};
    for (const auto& [key, call] : live_) out.abandoned += call->abandoned() ? 1 : 0;
    return out;
  }
  bool lost() const { return lost_; }

 private:
  Metrics& metrics_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Call>> live_;
  std::atomic<bool> lost_{false};
};

Service::Service(Runtime& runtime, device::TextSide text, const ServeOptions& options)
    : runtime_(runtime),
      text_(std::move(text)),
      options_(options),
      created_(unix_time()),
      id_stem_(draw_stem()),
      metrics_(options.model_name),
      books_(std::make_shared<Books>(metrics_)),
      canceller_(runtime),
      watch_(runtime),
      flight_(runtime) {}
Service::~Service() = default;

ApiResult<std::string> Service::adapter_of(std::string_view model) const {
  if (model.empty() || model == options_.model_name) return std::string();
  const std::lock_guard lock(adapters_mutex_);
  if (adapters_.contains(model)) return std::string(model);
  return not_found(fmt::format("there is no model \"{}\" here; /v1/models lists what there is", model), "model_not_found");
}

ApiResult<std::vector<std::vector<Token>>> Service::prompts_of(const GenerateBody& body) const {
  std::vector<std::vector<Token>> out;
  if (body.api == Api::chat) {
    TROUPE_TRY(auto ids, in_field(text_.encode_chat(to_chat(body.messages)), "messages"));
    out.push_back(std::move(ids));
    return out;
  }
  for (const ApiPrompt& prompt : body.prompts) {
    if (const auto* ids = std::get_if<std::vector<Token>>(&prompt)) {
      out.push_back(*ids);
    } else {
      TROUPE_TRY(auto ids2, in_field(text_.encode_prompt(std::get<std::string>(prompt)), "prompt"));
      out.push_back(std::move(ids2));
    }
  }
  return out;
}

ApiResult<std::vector<std::string>> Service::echo_of(const GenerateBody& body, const std::vector<std::vector<Token>>& prompts) const {
  std::vector<std::string> out;
  if (!body.echo) return out;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (const auto* text = std::get_if<std::string>(&body.prompts[i])) {
      out.push_back(*text);
    } else {
      TROUPE_TRY(auto bytes, in_field(text_.decode(prompts[i]), "prompt"));
      out.push_back(to_utf8(bytes));
    }
  }
  return out;
}

std::uint32_t Service::room_behind(std::size_t prompt) const {
  const ModelInfo& m = runtime_.model();
  const std::uint64_t positions = std::min<std::uint64_t>(m.context_length, std::uint64_t{m.kv_blocks} * m.block_size);
  return positions > prompt ? static_cast<std::uint32_t>(positions - prompt) : 1;  // 1: the runtime says what is wrong
}

ApiResult<void> Service::check_size(const GenerateBody& body, const std::vector<std::vector<Token>>& prompts) const {
  if (body.stream || !body.request.sampling.logprobs) return ok();
  std::uint64_t entries = 0;
  for (const std::vector<Token>& prompt : prompts) {
    const std::uint64_t room = room_behind(prompt.size());
    const std::uint64_t tokens = body.all_that_fits ? room : std::min<std::uint64_t>(room, body.request.stop.max_tokens);
    entries += tokens * body.n * (1 + *body.request.sampling.logprobs);
  }
  if (entries <= kMaxLogprobEntries) return ok();
  return bad_request(fmt::format("the answer could have {} log-probabilities, and at most {} fit in one: lower max_tokens, or stream it",
                                 entries, kMaxLogprobEntries),
                     body.api == Api::chat ? "top_logprobs" : "logprobs");
}

ApiResult<void> Service::submit(const GenerateBody& body, const std::string& adapter, const std::vector<std::vector<Token>>& prompts,
                                const std::shared_ptr<Call>& call) {
  for (std::uint32_t choice = 0; choice < call->choices(); ++choice) {
    const std::vector<Token>& prompt = prompts[choice / body.n];
    Request request = body.request;
    request.client = call->client_base() + choice;
    request.prompt = prompt;
    request.adapter = adapter;
    if (body.all_that_fits) request.stop.max_tokens = room_behind(prompt.size());
    // Answers to one prompt with one seed would all be the same.
    if (request.sampling.seed) request.sampling.seed = *request.sampling.seed + choice % body.n;
    if (options_.request_timeout.count() > 0) request.deadline = std::chrono::nanoseconds(options_.request_timeout).count();
    auto accepted = runtime_.submit(std::move(request), call->callback(choice));
    if (accepted) continue;
    call->not_submitted(choice);
    if (choice > 0) abandon(call);
    ApiError refused = from_runtime(accepted.error());
    if (accepted.error().retry_after.count() > 0) {
      refused.retry_after = std::chrono::ceil<std::chrono::milliseconds>(accepted.error().retry_after);
    }
    return refused;
  }
  return ok();
}

ApiResult<Service::Started> Service::start(Api api, std::string_view text, std::function<void()> wake) {
  if (draining_) return ApiError{503, "server_error", "the server is shutting down", "", "closed"};
  TROUPE_TRY(auto body, parse_generate(api, text));
  TROUPE_TRY(auto adapter, adapter_of(body.model));
  TROUPE_TRY(auto prompts, prompts_of(body));
  TROUPE_TRY(check_size(body, prompts));
  RenderOptions render;
  render.api = api;
  render.choices = static_cast<std::uint32_t>(prompts.size()) * body.n;
  const std::uint64_t base = next_client_.fetch_add(render.choices);
  render.id = fmt::format("{}-{}{:x}", api == Api::chat ? "chatcmpl" : "cmpl", id_stem_, base);
  render.created = unix_time();
  render.model = adapter.empty() ? options_.model_name : adapter;
  render.n = body.n;
  for (const auto& prompt : prompts) render.prompt_tokens += prompt.size();
  render.stream = body.stream;
  render.include_usage = body.include_usage;
  render.continuous_usage = body.continuous_usage;
  render.logprobs = body.request.sampling.logprobs.has_value();
  TROUPE_TRY(render.echo, echo_of(body, prompts));

  Started out;
  out.stream = body.stream;
  out.call = std::make_shared<Call>(base, render.choices, body.stream ? options_.stream_buffer : 0, books_, std::move(wake));
  out.render = std::make_unique<Render>(std::move(render), text_);
  books_->add(out.call);
  TROUPE_TRY(submit(body, adapter, prompts, out.call));
  return out;
}

void Service::abandon(const std::shared_ptr<Call>& call) {
  if (call->abandoned()) return;
  call->abandon();
  if (call->done()) return;
  metrics_.abandoned();
  canceller_.cancel(call->client_base(), call->choices());
}

ApiResult<std::string> Service::tokenize(std::string_view text) const {
  TROUPE_TRY(auto body, parse_tokenize(text));
  TROUPE_TRY(adapter_of(body.model));
  const auto encode = [&]() -> Result<std::vector<Token>> {
    if (const auto* messages = std::get_if<std::vector<ApiMessage>>(&body.input)) return text_.encode_chat(to_chat(*messages));
    const std::string& prompt = std::get<std::string>(body.input);
    return body.add_special_tokens ? text_.encode_prompt(prompt) : text_.encode(prompt);
  };
  TROUPE_TRY(auto ids, in_field(encode(), "prompt"));
  return json::serialize(json::object{
      {"count", ids.size()}, {"max_model_len", runtime_.model().context_length}, {"tokens", json::array(ids.begin(), ids.end())}});
}

ApiResult<std::string> Service::detokenize(std::string_view text) const {
  TROUPE_TRY(auto body, parse_detokenize(text));
  TROUPE_TRY(adapter_of(body.model));
  TROUPE_TRY(auto bytes, in_field(text_.decode(body.tokens), "tokens"));
  return json::serialize(json::object{{"prompt", to_utf8(bytes)}});
}

std::string Service::models() const {
  json::array data{json::parse(model(options_.model_name).value())};
  std::map<std::string, std::string, std::less<>> adapters;
  {
    const std::lock_guard lock(adapters_mutex_);
    adapters = adapters_;
  }
  for (const auto& [name, folder] : adapters) {
    if (auto one = model(name)) data.push_back(json::parse(one.value()));
  }
  return json::serialize(json::object{{"object", "list"}, {"data", std::move(data)}});
}

ApiResult<std::string> Service::model(std::string_view name) const {
  TROUPE_TRY(auto adapter, adapter_of(name));
  json::object out{
      {"id", name}, {"object", "model"}, {"created", created_}, {"owned_by", "troupe"}, {"max_model_len", runtime_.model().context_length}};
  if (!adapter.empty()) out["parent"] = options_.model_name;
  return json::serialize(out);
}

// `keep` is called before `done`, if the command succeeded.
void Service::run_lora(LoraCommand command, std::function<void()> keep, LoraDone done) {
  const std::string name = command.name;
  const auto accepted = runtime_.lora(std::move(command), [keep = std::move(keep), done, name](const LoraAnswer& answer) {
    if (answer.error.code != ErrorCode::none) {
      ApiError error = from_runtime(answer.error);
      if (answer.error.code == ErrorCode::io_failed || answer.error.code == ErrorCode::bad_file) {  // of the folder that the client named
        error.status = 400;
        error.type = "invalid_request_error";
      }
      return done(std::move(error));
    }
    keep();
    done(json::serialize(json::object{{"lora_name", name}, {"slot", answer.ack.adapter.slot}, {"evicted", answer.ack.evicted}}));
  });
  if (!accepted) done(from_runtime(accepted.error()));
}

void Service::load_lora(std::string_view text, LoraDone done) {
  auto body = parse_lora(text);
  if (!body) return done(body.error());
  const std::string name = body.value().name, path = body.value().path;
  if (path.empty()) return done(bad_request("field \"lora_path\": is missing", "lora_path"));
  if (name == options_.model_name) return done(bad_request("field \"lora_name\": is the model's own name", "lora_name"));
  LoraCommand command;
  command.kind = LoraCommand::Kind::promote_disk;
  command.name = name;
  command.path = path;
  run_lora(
      std::move(command),
      [this, name, path] {
        const std::lock_guard lock(adapters_mutex_);
        adapters_[name] = path;
      },
      std::move(done));
}

void Service::unload_lora(std::string_view text, LoraDone done) {
  auto body = parse_lora(text);
  if (!body) return done(body.error());
  LoraCommand command;
  command.kind = LoraCommand::Kind::unload;
  command.name = body.value().name;
  run_lora(
      std::move(command),
      [this, name = command.name] {
        const std::lock_guard lock(adapters_mutex_);
        adapters_.erase(name);
      },
      std::move(done));
}

HttpReply Service::health(const std::optional<RuntimeMetrics>& figures) const {
  const auto sick = [](std::string message, const char* code) {
    return to_reply(ApiError{503, "server_error", std::move(message), "", code});
  };
  if (!figures) return to_reply(no_answer());
  if (!figures->restarts && books_->lost()) return sick("the device is lost; restart the server", "device_lost");
  const Serving serving = serving_of(figures->replicas);
  if (serving.up == 0 && serving.of > 0) return sick("no replica serves: " + serving.why, "unavailable");
  if (figures->since_last_settled > std::chrono::nanoseconds(options_.stall_after).count()) {
    return sick(fmt::format("{} requests run and {} wait, and no step has settled for {:.1f} s", figures->running, figures->waiting,
                            to_seconds(figures->since_last_settled)),
                "stalled");
  }
  if (draining_) return sick("the server is shutting down", "draining");
  HttpReply out;
  out.body = json::serialize(json::object{{"status", "ok"},
                                          {"running", figures->running},
                                          {"waiting", figures->waiting},
                                          {"since_last_settled", to_seconds(figures->since_last_settled)},
                                          {"replicas", serving.of},
                                          {"replicas_up", serving.up}});
  return out;
}

HttpReply Service::exposition(const std::optional<RuntimeMetrics>& figures) {
  if (!figures) return to_reply(no_answer());
  HttpReply out;
  out.content_type = "text/plain; version=0.0.4; charset=utf-8";
  out.body = metrics_.expose(*figures);
  return out;
}

HttpReply Service::replicas(const std::optional<RuntimeMetrics>& figures) const {
  if (!figures) return to_reply(no_answer());
  json::array replicas;
  for (const ReplicaStatus& r : figures->replicas) replicas.push_back(to_json(r));
  HttpReply out;
  out.body = json::serialize(json::object{{"model", options_.model_name},
                                          {"draining", draining_.load()},
                                          {"running", figures->running},
                                          {"waiting", figures->waiting},
                                          {"unplaced", figures->unplaced},
                                          {"tokens", figures->scheduler.tokens},
                                          {"replicas", std::move(replicas)}});
  return out;
}

ApiResult<std::string> Service::change_replica(std::string_view text, bool drain) {
  TROUPE_TRY(auto wanted, parse_replica(text));
  const std::vector<ReplicaStatus> replicas = runtime_.metrics().replicas;
  const auto it = std::find_if(replicas.begin(), replicas.end(), [&](const ReplicaStatus& r) {
    return wanted.name.empty() ? r.replica.index == wanted.index : r.name == wanted.name;
  });
  if (it == replicas.end()) return not_found("there is no such replica; /replicas lists what there is", "replica_not_found");
  const std::uint32_t index = it->replica.index;
  if (drain) {
    const auto drained = runtime_.drain_replica(index, std::chrono::milliseconds(1));
    if (!drained) return from_runtime(drained.error());
  } else if (const auto back = runtime_.undrain_replica(index); !back) {
    return from_runtime(back.error());
  }
  json::object out{{"replica", it->name}};
  for (const ReplicaStatus& r : runtime_.metrics().replicas) {
    if (r.replica.index == index) out["state"] = name(r.state);
  }
  return json::serialize(out);
}

HttpReply Service::state(const std::optional<RuntimeMetrics>& figures) const {
  if (!figures) return to_reply(no_answer());
  const actors::SchedulerStats& s = figures->scheduler;
  const Books::Count calls = books_->count();
  HttpReply out;
  out.body = json::serialize(json::object{{"calls", calls.calls},
                                          {"calls_abandoned", calls.abandoned},
                                          {"cancels_acknowledged", canceller_.acknowledged()},
                                          {"draining", draining_.load()},
                                          {"running", figures->running},
                                          {"waiting", figures->waiting},
                                          {"since_last_settled", to_seconds(figures->since_last_settled)},
                                          {"facts", to_json(figures->facts)},
                                          {"scheduler", json::object{{"steps", s.steps},
                                                                     {"steps_ahead", s.steps_ahead},
                                                                     {"rows", s.rows},
                                                                     {"fed_rows", s.fed_rows},
                                                                     {"device_sampled", s.device_sampled},
                                                                     {"overruns", s.overruns},
                                                                     {"tokens", s.tokens},
                                                                     {"prefill_tokens", s.prefill_tokens},
                                                                     {"cached_tokens", s.cached_tokens},
                                                                     {"preemptions", s.preemptions},
                                                                     {"failed_rows", s.failed_rows},
                                                                     {"retries", s.retries}}}});
  return out;
}

}  // namespace troupe::serve
