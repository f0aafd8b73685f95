// The world's edge: what clients ask for, what they got, and what they should have got.
#include <algorithm>
#include <cmath>
#include <utility>

#include "actors/scheduler/text_stream.h"
#include "tests/sim/world.h"

namespace troupe::sim {

// A client id that comes again starts a new stream; nothing may come for the old one after that.
Stream& World::stream_of(const RequestId& id) {
  if (options_.replicas > 0) return generations_[id.generation];
  Stream& s = streams_[id.client];
  if (s.generation < id.generation) {
    if (s.generation != 0 && !s.finish) broken("R5: " + label(id) + " began before the end of its client's last request");
    s = {};
    s.generation = id.generation;
  } else if (s.generation > id.generation) {
    broken("R5: something came for " + label(id) + ", which was over");
  }
  return s;
}

World::Accepting* World::accepted(const RequestId& id) {
  if (id.generation == 0 || id.generation > accepted_.size() || accepted_[id.generation - 1].id != id) {
    broken("R5: something came for " + label(id) + ", which was never accepted");
    return nullptr;
  }
  return &accepted_[id.generation - 1];
}

// The dispatcher took a request: from here on delivery knows it.
void World::accept(const RequestId& id) {
  if (id.generation <= accepted_.size()) return;
  if (id.generation != accepted_.size() + 1) broken("R5: generations are not counted one by one");
  const auto it = expected_.find(submitting_.get());
  Accepting& a = accepted_.emplace_back();
  a.id = id;
  a.expected = a.base = it == expected_.end() ? nullptr : it->second;
  a.commands = commands_.size();
  delivery_.open(id, submitting_->stop.max_tokens);
}

// It is placed, or placed again: it must go on from what its client has.
void World::placed(const Admit& m) {
  accept(m.id);
  Accepting* a = accepted(m.id);
  if (a == nullptr || options_.replicas == 0) return;
  if (a->ended) broken("R5: " + label(m) + ", and it has ended");
  if (m.attempt < a->attempt || (m.attempt == a->attempt && m.attempt > 0)) broken("R5: " + label(m) + " is no new attempt");
  a->attempt = m.attempt;
  if (m.output.size() != a->tokens) broken("R5: " + label(m) + ": its client has " + std::to_string(a->tokens) + " tokens");
  const std::string here = m.replica.index < options_.arithmetic.size() ? options_.arithmetic[m.replica.index] : "sim";
  if (a->tokens > 0 && a->arithmetic != here) a->other_arithmetic = true;
  a->arithmetic = here;
}

// What delivery dropped may only be what an attempt that is over said.
void World::dropped(const TokenBatch& batch) {
  for (std::uint32_t i = 0; i < batch.events.size(); ++i) {
    const TokenEvent& e = batch.events[i];
    if (std::count(delivery_.events().begin(), delivery_.events().end(), i) > 0) continue;
    const Accepting* a = accepted(e.request);
    if (a == nullptr) return;
    if (options_.replicas > 0 && a->counts != e.attempt) continue;
    broken(a->ended
               ? "R5: a token of " + label(e.request) + " after its end"
               : "R5: token " + std::to_string(e.index) + " of " + label(e.request) + " where " + std::to_string(a->tokens) + " was due");
  }
  for (std::uint32_t i = 0; i < batch.finishes.size(); ++i) {
    const Finish& f = batch.finishes[i];
    if (std::count(delivery_.finishes().begin(), delivery_.finishes().end(), i) > 0) continue;
    const Accepting* a = accepted(f.request);
    if (a != nullptr && (options_.replicas == 0 || a->counts == f.attempt)) broken("R5: a second end of " + label(f.request));
  }
}

void World::receive(const TokenBatch& batch) {
  for (const std::uint32_t i : delivery_.events()) {
    const TokenEvent& e = batch.events[i];
    Accepting* a = accepted(e.request);
    if (a == nullptr) continue;
    Stream& s = stream_of(e.request);
    if (s.finish) broken("R5: a token of " + label(e.request) + " after its end");
    if (e.index != s.tokens.size())
      broken("R5: token " + std::to_string(e.index) + " of " + label(e.request) + " where " + std::to_string(s.tokens.size()) + " was due");
    if (e.attempt != a->counts)
      broken("R5: token " + std::to_string(e.index) + " of " + label(e.request) + " is of an attempt that is over");
    s.tokens.push_back(e.id);
    s.logprobs.push_back(e.logprob);
    s.text += batch.text.substr(e.text_begin, e.text_size);
    if (a->expected != nullptr) {
      const std::vector<Token>& right = a->expected->tokens;
      if (a->tokens >= right.size() || right[a->tokens] != e.id)
        broken("R1: token " + std::to_string(a->tokens) + " of " + label(e.request) + " is " + std::to_string(e.id) +
               ", undisturbed it is " + (a->tokens < right.size() ? std::to_string(right[a->tokens]) : "none"));
      if (!a->expected->logprobs.empty() && a->tokens < right.size()) same_logprob(e, a->expected->logprobs[a->tokens]);
    }
    ++a->tokens;
  }
  for (const std::uint32_t i : delivery_.finishes()) {
    const Finish& f = batch.finishes[i];
    end(f, std::string_view(batch.text).substr(f.text_begin, f.text_size));
  }
  dropped(batch);
}

void World::same_logprob(const TokenEvent& e, float right) {
  if (e.logprob == right || (std::isnan(e.logprob) && std::isnan(right))) return;
  broken("R1: the log-probability of token " + std::to_string(e.index) + " of " + label(e.request) + " is not what it is undisturbed");
}

void World::end(const Finish& f, std::string_view text) {
  Accepting* a = accepted(f.request);
  if (a == nullptr) return;
  finishes_.push_back(f);
  if (std::exchange(a->ended, true)) broken("R5: a second end of " + label(f.request));
  judge_error(f);
  if (f.other_arithmetic != a->other_arithmetic) broken("R1: " + label(f) + " does not say whether its replicas were of one arithmetic");
  Stream& s = stream_of(f.request);
  if (s.finish) broken("R5: a second end of " + label(f.request));
  s.text += text;
  s.finish = f;
  if (f.reason != FinishReason::stop && f.reason != FinishReason::length && model_.tokens) {
    std::string bytes, all;  // whoever ends it, nothing stays held back
    for (const Token id : s.tokens) bytes += model_.tokens->text(id);
    actors::append_utf8(bytes, true, all);
    if (s.text != all) broken("R5: " + label(f) + ": not all the text of its tokens was delivered, \"" + s.text + "\" of \"" + all + "\"");
  }
  if (a->expected == nullptr || (f.reason != FinishReason::stop && f.reason != FinishReason::length)) return;
  if (a->tokens != a->expected->tokens.size() || f.reason != a->expected->finish->reason || s.text != a->expected->text)
    broken("R1: " + label(f) + ": undisturbed it is " + label(*a->expected->finish));
}

// R7: one failure is retried; an error needs a second one, or a device that is gone, of several replicas too many of them.
void World::judge_error(const Finish& f) {
  const bool of_lora = f.error.code == ErrorCode::unknown_adapter || f.error.code == ErrorCode::adapter_gone;
  if (of_lora && model_.max_loras == 0) broken("R9: " + label(f) + " without any adapter");
  if (f.reason != FinishReason::error || of_lora) return;
  if (options_.replicas > 0 && (f.error.code == ErrorCode::unavailable || f.attempt > options_.max_moves)) return;
  if (options_.replicas == 0 && (parts_[0]->device_core.lost() || (parts_[0]->unsafe && f.error.code == ErrorCode::device_lost))) return;
  std::uint32_t hits = 0;
  for (const auto& part : parts_) hits += part->witness.hits(f.request);
  if (hits < 2) broken("R7: " + label(f.request) + " failed, and " + std::to_string(hits) + " faults met it: " + f.error.what);
}

SubmitReply World::submit(Request request) {
  const std::size_t answered = replies_.size();
  post(std::move(request), nullptr);
  while (replies_.size() == answered && violation_.empty() && step()) {
  }
  return replies_.size() > answered ? replies_.back() : SubmitReply{};
}

void World::post(Request request, const Stream* expected) {
  const std::uint64_t seed = random_();
  auto shared = Shared<Request>::of(std::move(request));
  if (expected != nullptr) expected_[shared.get()] = expected;
  recorder_.at_the_edge();
  send({Actor::edge}, {Actor::dispatcher}, Submit{{}, std::move(shared), seed});
}

void World::cancel(std::uint64_t client) {
  recorder_.at_the_edge();
  send({Actor::edge}, {Actor::dispatcher}, Cancel{{}, client});
}

void World::drain() {
  recorder_.at_the_edge();
  send({Actor::edge}, {Actor::dispatcher}, Drain{});
}

void World::lora(LoraCommand command) {
  recorder_.at_the_edge();
  send({Actor::edge}, {Actor::dispatcher}, LoraSubmit{{}, ++lora_ids_, std::move(command)});
}

std::uint64_t World::longest_gap(std::uint64_t client) const {
  const auto it = paces_.find(client);
  return it == paces_.end() ? 0 : it->second.longest;
}

void World::hold(AdapterRef adapter, TimeNs until) {
  recorder_.at_the_edge();
  send({Actor::lora}, {Actor::scheduler}, LoraHold{{}, adapter, until});
}

// A request leaves the LoRA controller. From here on its stream is known.
void World::bound(Part& part, const Admit& m) {
  Accepting* a = accepted(m.id);
  if (a == nullptr || m.parked || m.attempt < a->attempt) return;  // of a replica that is fenced and does not know it yet
  if (options_.replicas == 0) in_order(*a, m);
  if (m.error.code != ErrorCode::none) return;
  std::string file;
  if (m.adapter.slot != 0) {
    if (part.loaded.count(m.adapter) == 0)
      return broken("R9: " + label(m.id) + " is bound to " + label(m.adapter) + ", which nobody loaded");
    file = part.loaded[m.adapter];
  }
  if (options_.replicas > 0 && m.output.empty()) in_order(*a, part, m, file);
  if (!m.output.empty() && a->file && *a->file != file)
    broken("R9: " + label(m) + " goes on with \"" + file + "\", and its output comes from \"" + *a->file + "\"");
  a->file = file;
  if (file.empty()) return void(a->expected = a->base);
  Stream& s = oracles_.emplace_back();
  const Request& q = *m.request;
  s.tokens = expected_tokens(q, model_, options_.device, sim_adapter(file));
  const Token last = s.tokens.back();
  const bool stops = std::count(q.stop.stop_token_ids.begin(), q.stop.stop_token_ids.end(), last) > 0 || (!q.stop.ignore_eos && last == 1);
  s.finish.emplace();
  s.finish->reason = stops && (s.tokens.size() > q.stop.min_tokens || q.stop.min_tokens == 0) ? FinishReason::stop : FinishReason::length;
  for (const Token id : s.tokens) s.text += model_.tokens->text(id);
  a->expected = &s;
}

// What it is bound to must be no older than what the last command before it that concerned its name did, and that command
// must have been answered.
void World::in_order(const Accepting& a, const Admit& m) {
  const std::string& name = m.request->adapter;
  for (std::size_t i = a.commands; i > 0 && !name.empty(); --i) {
    const Commanded& c = commands_[i - 1];
    const bool loads =
        c.submit.command.kind == LoraCommand::Kind::load_into_slot || c.submit.command.kind == LoraCommand::Kind::promote_disk;
    if (c.submit.command.name != name || !(loads || c.submit.command.kind == LoraCommand::Kind::unload)) continue;
    if (!c.answer) {
      broken("R9: " + label(m.id) + " was bound before the outcome of " + label(c.submit));
    } else if (c.answer->error.code == ErrorCode::none && loads && m.error.code == ErrorCode::none &&
               m.adapter.generation < c.answer->ack.adapter.generation) {
      broken("R9: " + label(m.id) + " is bound to " + label(m.adapter) + ", older than the outcome of " + label(c.submit));
    }
    break;
  }
}

// Of several replicas: the one that the request went to had answered that command, and if it was done, the file is its, or a
// later one's.
void World::in_order(const Accepting& a, const Part& part, const Admit& m, const std::string& file) {
  const std::string& name = m.request->adapter;
  using Kind = LoraCommand::Kind;
  for (std::size_t i = a.commands; i > 0 && !name.empty(); --i) {
    const Commanded& c = commands_[i - 1];
    const LoraCommand& command = c.submit.command;
    if (command.name != name || command.kind == Kind::rotate || command.kind == Kind::list) continue;
    if (command.kind != Kind::promote_disk && command.kind != Kind::load_into_slot) return;
    if (!command.replica.empty()) return;
    const auto done = part.answered.find(c.submit.id);
    if (done == part.answered.end()) {
      // One that is rolled back passes over those that it has not come to.
      const auto failed = [&](const auto& p) { return p->answered.count(c.submit.id) != 0 && !p->answered.at(c.submit.id); };
      const bool passed_over = command.roll_back && std::any_of(parts_.begin(), parts_.end(), failed);
      if (!c.answer && !passed_over) broken("R9: " + label(m) + " was bound before the outcome of " + label(c.submit));
      return;
    }
    if (!done->second) return;
    for (std::size_t k = i - 1; k < commands_.size(); ++k) {
      const LoraCommand& later = commands_[k].submit.command;
      if (later.name == name && (later.path == file || later.kind == Kind::promote || later.roll_back)) return;
    }
    return broken("R9: " + label(m) + " is bound to \"" + file + "\", older than the outcome of " + label(c.submit));
  }
}

std::vector<Token> expected_tokens(const Request& q, const ModelInfo& model, const SimDeviceOptions& device, std::uint64_t adapter) {
  std::vector<std::uint64_t> states;
  std::uint64_t recurrent = 0;
  std::uint64_t state = 0;  // what the choice is made from: the last state, or the window's
  const auto push = [&](Token id) {
    const auto position = static_cast<std::uint32_t>(states.size());
    std::uint64_t before = position == 0 ? 0 : states.back();
    if (device.window == 0 && position > 0) before = sim_attend(before, sim_earlier(position), states[sim_earlier(position)]);
    states.push_back(sim_state(before, position, id, adapter));
    state = states.back();
    if (device.ssm_states != 0) {
      recurrent = sim_recur(recurrent, state);
      state = sim_mixed(state, recurrent);
    }
    if (device.window == 0) return;
    state = 0;
    for (std::uint32_t p = position - std::min(position, device.window - 1); p <= position; ++p) state = sim_attend(state, p, states[p]);
  };
  for (const Token id : q.prompt) push(id);
  std::vector<Token> out;
  bool closed = false;
  const auto limit = std::min<std::size_t>(q.stop.max_tokens, device.context - q.prompt.size());
  while (out.size() < limit) {
    std::vector<Token> bar;
    if (out.size() < q.stop.min_tokens) {
      if (!q.stop.ignore_eos) bar.insert(bar.end(), model.eos_ids.begin(), model.eos_ids.end());
      bar.insert(bar.end(), q.stop.stop_token_ids.begin(), q.stop.stop_token_ids.end());
    }
    if (closed) bar.insert(bar.end(), {q.think->bar_a, q.think->bar_b});
    Token id = static_cast<Token>(state % device.vocab);
    if (bar.size() > 2) {
      std::vector<float> logits(device.vocab);
      sim_logits(state, device.vocab, logits.data());
      for (const Token b : bar) logits[b] = -1e30f;
      id = static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    } else {
      id = sim_choice(state, device.vocab, {bar.empty() ? RowMask::kNone : bar[0], bar.size() > 1 ? bar[1] : RowMask::kNone});
    }
    out.push_back(id);
    if (q.think && id == q.think->close) closed = true;
    const bool ends = std::count(q.stop.stop_token_ids.begin(), q.stop.stop_token_ids.end(), id) > 0 ||
                      (!q.stop.ignore_eos && std::count(model.eos_ids.begin(), model.eos_ids.end(), id) > 0);
    if (ends && out.size() > q.stop.min_tokens) break;
    push(id);
  }
  return out;
}

}  // namespace troupe::sim
