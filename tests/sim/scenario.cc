#include "tests/sim/scenario.h"

#include <algorithm>
#include <random>

#include "tests/sim/recordings.h"

namespace troupe::sim {

namespace {

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed * 0x9E3779B97F4A7C15u + 1) {}
  Scenario make(std::uint64_t seed) {
    Scenario s;
    s.world.seed = seed;
    sizes(s.world);
    const std::uint32_t n = 2 + below(5);
    if (one_in(2)) shared_ = tokens(4 + below(9));
    const bool few_clients = one_in(3);
    for (std::uint32_t i = 0; i < n; ++i) s.requests.push_back(request(s.world.device, few_clients ? 1 + below(3) : i + 1));
    s.world.device.kv_blocks = most_blocks(s) + (one_in(2) ? below(4) : below(30));
    for (std::uint32_t i = 0; i < n; ++i) {
      s.events.push_back({ClientEvent::Kind::submit, one_in(2) ? 0 : below(40), i, 0});
      if (one_in(4)) s.events.push_back({ClientEvent::Kind::cancel, below(60), 0, s.requests[below(i + 1)].client});
    }
    if (one_in(10))
      s.events.insert(s.events.begin() + 1 + below(static_cast<std::uint32_t>(s.events.size())),
                      {ClientEvent::Kind::drain, below(30), 0, 0});
    if (one_in(2)) faults(s.world.device);
    if (!one_in(3)) spill(s);
    // Not drawn: the same seeds keep their lives.
    const std::uint64_t h = seed * 0xD1342543DE82EF95u;
    s.world.device.copy_stream = s.world.device.spill_places > 0 && (h >> 33 & 1) != 0;
    if ((h >> 34 & 15) == 0) s.world.device.mark_errors = {1 + (h >> 38 & 3)};
    s.world.device.prefill_stream = (h >> 40 & 3) == 0;
    return s;
  }

 private:
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }
  std::vector<Token> tokens(std::uint32_t n) {
    std::vector<Token> all;
    for (std::uint32_t i = 0; i < n; ++i) all.push_back(below(vocab_));
    return all;
  }

  // That the longest request needs.
  static std::uint32_t most_blocks(const Scenario& s) {
    std::uint32_t most = 1;
    const ModelInfo model = sim_model(s.world.device);
    for (const Request& q : s.requests) {
      const auto positions = static_cast<std::uint32_t>(q.prompt.size()) + q.stop.max_tokens;
      most = std::max(most, static_cast<std::uint32_t>(model.blocks_needed(std::min(positions, model.context_length))));
    }
    return most;
  }

  void sizes(WorldOptions& w) {
    static constexpr std::uint32_t depths[] = {1, 2, 2, 2, 3, 3, 4, 5, 6, 8}, vocabs[] = {8, 16, 64}, lags[] = {1, 1, 2, 4, 12};
    w.depth = depths[below(10)];
    w.max_batch = 1 + below(6);
    w.step_tokens = 1 + below(24);
    w.ring_slots = one_in(8) ? 1 + below(w.depth) : 0;
    w.max_live = one_in(6) ? 2 : 64;
    w.device_lag = lags[below(5)];
    w.prefix_cache = !one_in(5);
    SimDeviceOptions& d = w.device;
    d.vocab = vocab_ = vocabs[below(3)];
    d.block_size = one_in(2) ? 2 : 4;
    d.context = 20 + below(30);
    d.n_slots = 2 + below(7);
    d.max_rows = 2 + below(7);
    d.max_step_tokens = 24;
    d.max_logits_rows = 1 + below(4);
    d.window = one_in(3) ? 2 + below(10) : 0;
  }

  Request request(const SimDeviceOptions& d, std::uint64_t client) {
    Request q;
    q.client = client;
    if (!shared_.empty() && !one_in(4)) q.prompt = shared_;
    const auto more = tokens(1 + below(10));
    q.prompt.insert(q.prompt.end(), more.begin(), more.end());
    if (q.prompt.size() > d.context - 2) q.prompt.resize(d.context - 2);
    q.stop.max_tokens = 1 + below(one_in(4) ? 24 : 9);
    if (one_in(5)) {
      q.sampling.temperature = one_in(3) ? 0.0f : 0.8f;
      q.sampling.top_k = below(10);
      q.sampling.seed = random_();
      if (one_in(2)) q.sampling.repetition_penalty = 1.2f;
      if (one_in(3)) q.sampling.frequency_penalty = 0.3f;
      if (one_in(3)) q.sampling.logprobs = below(3);
    }
    if (one_in(3)) q.think = Think{2 + below(6), 2 + below(6), 2 + below(6)};
    q.stop.ignore_eos = one_in(3);
    if (one_in(3)) q.stop.stop_token_ids = tokens(2);
    if (one_in(4)) q.stop.min_tokens = below(q.stop.max_tokens + 1);
    if (one_in(4))
      q.stop.stop = {std::string(1, static_cast<char>('a' + below(vocab_) % 26)) + static_cast<char>('a' + below(vocab_) % 26), "aa"};
    if (one_in(8)) q.deadline = 1000 * static_cast<TimeNs>(20 + below(300));
    return q;
  }

  void faults(SimDeviceOptions& d) {
    for (std::uint32_t n = 1 + below(3); n > 0; --n) {
      const std::uint64_t step = 1 + below(20);
      switch (below(14)) {
        case 0:
        case 1:
          d.fail_steps.insert(step);
          break;
        case 2:
        case 3:
          d.fail_late.insert(step);
          break;
        case 4:
          d.event_errors.insert(step);
          break;
        case 5:
          d.readback_errors.insert(step);
          break;
        case 6:
        case 7:
          d.enqueue_errors.insert(step);
          break;
        case 8:
        case 9:
          d.half_enqueued.insert(step);
          break;
        case 10:
        case 11:
          d.nan_rows.insert({step, below(3)});
          break;
        case 12:  // twice in a row: somebody fails for good
          for (std::uint64_t k = 0; k < 4; ++k) d.nan_rows.insert({step + k, 0}), d.fail_steps.insert(step + 4 + k);
          break;
        default:
          (one_in(2) ? d.lose_at : d.hang_at) = step;
          break;
      }
    }
  }

  // Preempted sequences are saved to files, which now and then cannot be written, read, or trusted.
  void spill(Scenario& s) {
    WorldOptions& w = s.world;
    w.max_batch = 2 + below(5);
    for (Request& q : s.requests)
      if (!one_in(4)) q.stop.max_tokens += 4 + below(14);
    if (!one_in(4)) w.device.kv_blocks = most_blocks(s) + below(3);
    for (std::uint32_t n = below(6); n > 0; --n)
      s.events.push_back(
          {ClientEvent::Kind::cancel, 10 + below(60), 0, s.requests[below(static_cast<std::uint32_t>(s.requests.size()))].client});
    w.device.spill_places = 1 + below(3);
    w.device.spill_blocks = 1 + below(4);
    w.spill_min_blocks = below(3);
    if (one_in(12)) w.spill_limit = 100 * below(6);
    if (one_in(3)) return;
    for (std::uint32_t n = 1 + below(3); n > 0; --n) {
      const std::uint64_t nth = 1 + below(3);
      switch (below(8)) {
        case 0:
          w.files.write_errors.insert(nth + below(4));
          break;
        case 1:
          w.files.disk_bytes = 80 + 40 * below(8);
          break;
        case 2:
          w.files.read_errors.insert(nth + below(3));
          break;
        case 3:
          w.files.damages = {nth, nth + 1, nth + 2};
          break;
        case 4:
          w.files.truncations.insert(nth);
          break;
        case 5:
          w.device.copy_errors.insert(nth + below(3));
          break;
        case 6:
          w.device.copy_refused.insert(nth + below(3));
          break;
        default:
          w.device.copy_half.insert(nth + below(3));
          break;
      }
    }
  }

  std::mt19937_64 random_;
  std::uint32_t vocab_ = 8;
  std::vector<Token> shared_;
};

// What every request's stream is when nothing disturbs it: depth 1, room for all, no faults, no deadlines.
std::vector<Stream> undisturbed(const Scenario& s, std::uint64_t& messages, std::string& violation) {
  WorldOptions o;
  o.depth = 1;
  o.in_order = true;
  o.prefix_cache = false;
  o.device.vocab = s.world.device.vocab;
  o.device.block_size = s.world.device.block_size;
  o.device.context = s.world.device.context;
  o.device.window = s.world.device.window;
  o.device.kv_blocks = 256;
  o.device.ssm_states = s.world.device.ssm_states == 0 ? 0 : 64;
  World world(o);
  for (std::size_t i = 0; i < s.requests.size(); ++i) {
    Request q = s.requests[i];
    q.client = i + 1;
    q.deadline = {};
    q.adapter.clear();
    world.post(std::move(q), nullptr);
  }
  world.run(100'000);
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < s.requests.size(); ++i) {
    streams.push_back(world.stream(i + 1));
    if (!streams.back().finish && violation.empty()) violation = "the undisturbed run has no end";
  }
  if (violation.empty()) violation = world.violation();
  messages = world.messages();
  return streams;
}

void count(World& w, Coverage& c) {
  for (const SubmitReply& r : w.replies()) {
    if (r.error.code == ErrorCode::none)
      c.add(Path::accepted);
    else if (r.error.code == ErrorCode::overloaded)
      c.add(Path::overloaded);
    else if (r.error.code == ErrorCode::closed)
      c.add(Path::refused_draining);
    else
      c.add(Path::refused_live_id);
  }
  for (const CancelReply& r : w.cancels()) {
    if (r.outcome == CancelOutcome::cancelled_waiting)
      c.add(Path::cancelled_waiting);
    else if (r.outcome == CancelOutcome::cancelled_running)
      c.add(Path::cancelled_running);
    else
      c.add(Path::cancel_too_late);
  }
  for (const Finish& f : w.finishes()) {
    if (f.reason == FinishReason::stop)
      c.add(Path::ended_stop);
    else if (f.reason == FinishReason::length)
      c.add(Path::ended_length);
    else if (f.reason == FinishReason::deadline)
      c.add(Path::deadlines);
    else if (f.reason == FinishReason::error)
      c.add(Path::ended_error);
  }
  c.add(Path::drains, w.drained() ? 1 : 0);
  const actors::SchedulerStats& s = w.scheduler().stats();
  c.add(Path::prefill_steps, s.prefill_steps);
  c.add(Path::steps, s.steps), c.add(Path::steps_ahead, s.steps_ahead), c.add(Path::fed_rows, s.fed_rows),
      c.add(Path::overruns, s.overruns);
  c.add(Path::redone_rows, s.redone_rows), c.add(Path::stale_results, s.stale_results), c.add(Path::preemptions, s.preemptions);
  c.add(Path::resumes, s.resumes), c.add(Path::kv_waits, s.kv_waits), c.add(Path::fence_waits, s.fence_waits),
      c.add(Path::ring_waits, s.ring_waits);
  c.add(Path::retries, s.retries), c.add(Path::failed_rows, s.failed_rows), c.add(Path::host_chosen, s.host_chosen),
      c.add(Path::device_sampled, s.device_sampled);
  const actors::RouterStats r = w.router().stats();
  c.add(Path::released_now, r.releases_now), c.add(Path::released_at_fence, r.releases_fenced), c.add(Path::kv_refused, r.kv_refusals);
  c.add(Path::prefix_hits, r.prefix_hits), c.add(Path::prefix_blocks, r.prefix_blocks);
  c.add(Path::prefix_published, r.published), c.add(Path::prefix_reclaimed, r.reclaimed);
  c.add(Path::spills, s.spills), c.add(Path::spill_failures, s.spill_failures), c.add(Path::spills_dropped, s.spills_dropped);
  c.add(Path::restores, s.restores), c.add(Path::restore_failures, s.restore_failures);
  c.add(Path::cancels_while_saving, s.ended_saving), c.add(Path::cancels_while_restoring, s.ended_restoring);
  const SimFiles::Faults& io = w.files().faults();
  c.add(Path::write_errors, io.write), c.add(Path::disk_full, io.full), c.add(Path::read_errors, io.read);
  c.add(Path::damaged_files, io.damaged), c.add(Path::copy_errors, w.device().faults().copy);
  c.add(Path::copies_ordered, r.marks), c.add(Path::mark_errors, w.device().faults().mark);
  c.add(Path::behind_window, r.behind_window), c.add(Path::behind_window_fenced, r.behind_window_fenced);
  const SimDevice::Faults& f = w.device().faults();
  c.add(Path::step_failed_early, f.failed_early), c.add(Path::step_failed_late, f.failed_late), c.add(Path::nan_rows, f.nan);
  c.add(Path::event_errors, f.event), c.add(Path::readback_errors, f.readback), c.add(Path::enqueue_errors, f.enqueue);
  c.add(Path::half_enqueued, f.half), c.add(Path::device_lost, f.lost),
      c.add(Path::step_timeouts, w.device().hung() && w.device_core().lost() ? 1 : 0);
}

}  // namespace

Scenario make_scenario(std::uint64_t seed) {
  Scenario s = Maker(seed).make(seed);
  s.world.device.samples = std::mt19937_64(seed * 0x2545F4914F6CDD1Du + 3)() % 2 == 0;
  return s;
}

Scenario make_lora_scenario(std::uint64_t seed) {
  using Kind = LoraCommand::Kind;
  Scenario s = make_scenario(seed);
  std::mt19937_64 random(seed * 0x2545F4914F6CDD1Du + 7);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  static constexpr const char* names[] = {"a", "b", "c", "d"};
  const std::uint32_t n_names = 1 + below(4);
  s.world.device.max_loras = 1 + below(3);
  s.world.lora_policy = below(8) == 0 ? actors::LoraPolicy::global : actors::LoraPolicy::scoped;
  for (Request& q : s.requests) {  // what expected_tokens() foresees
    q.sampling = {};
    q.stop.stop.clear();
    if (below(4) != 0) q.adapter = names[below(n_names)];
  }
  const std::uint32_t n = 1 + below(6);
  for (std::uint32_t i = 0; i < n; ++i) {
    ClientEvent e;
    e.kind = ClientEvent::Kind::lora;
    e.after = below(2) == 0 ? 0 : below(60);
    LoraCommand& c = e.command;
    static constexpr Kind kinds[] = {Kind::promote_disk, Kind::promote_disk, Kind::promote_disk, Kind::load_into_slot, Kind::load_into_slot,
                                     Kind::unload,       Kind::unload,       Kind::rotate,       Kind::list,           Kind::promote};
    c.kind = i == 0 ? Kind::promote_disk : kinds[below(10)];
    c.name = below(12) == 0 ? "" : names[below(n_names)];
    c.path = (below(10) == 0 ? "bad" : "file") + std::to_string(below(6));
    c.slot = below(8) == 0 ? 9 : 1 + below(s.world.device.max_loras);
    c.max_wait = below(3) == 0 ? 1000 * static_cast<TimeNs>(1 + below(60)) : 0;
    c.at_bound = below(2) == 0 ? LoraCommand::AtBound::fail : LoraCommand::AtBound::preempt;
    // Half of the lives begin with an adapter.
    const std::uint32_t at = i == 0 && below(2) == 0 ? 0 : below(static_cast<std::uint32_t>(s.events.size()) + 1);
    s.events.insert(s.events.begin() + at, std::move(e));
  }
  return s;
}

Scenario make_hybrid_scenario(std::uint64_t seed, bool lora) { return as_hybrid(lora ? make_lora_scenario(seed) : make_scenario(seed)); }

Scenario as_hybrid(Scenario s) {
  std::mt19937_64 random(s.world.seed * 0x2545F4914F6CDD1Du + 11);
  SimDeviceOptions& d = s.world.device;
  d.window = 0;
  d.ssm_states = (s.world.depth + 1) * (1 + static_cast<std::uint32_t>(random() % 8)) + static_cast<std::uint32_t>(random() % 4);
  d.ssm_parts = 1 + static_cast<std::uint32_t>(random() % 3);
  d.kv_blocks = std::max(d.kv_blocks, (d.context + d.block_size - 1) / d.block_size);  // it was for a window
  for (SimDeviceOptions& other : s.world.devices)
    other.window = 0, other.ssm_states = d.ssm_states, other.ssm_parts = d.ssm_parts, other.kv_blocks = d.kv_blocks;
  return s;
}

Outcome run_scenario(const Scenario& s, const Faults& faults, std::size_t events, bool keep_log) {
  Outcome outcome;
  const std::vector<Stream> expected = undisturbed(s, outcome.reference_messages, outcome.violation);
  if (!outcome.violation.empty()) return outcome;
  WorldOptions options = s.world;
  options.fault = faults.scheduler;
  options.router_fault = faults.router;
  options.lora_fault = faults.lora;
  options.spill_fault = faults.spill;
  options.dispatcher_fault = faults.dispatcher;
  options.delivery_fault = faults.delivery;
  options.device.append_history = faults.append_history;
  World world(options);
  world.keep_log = keep_log;
  const std::size_t n = events == 0 ? s.events.size() : std::min(events, s.events.size());
  for (std::size_t i = 0; i < n; ++i) {
    const ClientEvent& e = s.events[i];
    for (std::uint32_t k = 0; k < e.after && world.violation().empty() && world.step(); ++k) {
    }
    if (e.kind == ClientEvent::Kind::submit)
      world.post(s.requests[e.request], &expected[e.request]);
    else if (e.kind == ClientEvent::Kind::cancel)
      world.cancel(e.client);
    else if (e.kind == ClientEvent::Kind::lora)
      world.lora(e.command);
    else if (e.kind == ClientEvent::Kind::strike)
      world.strike(e.replica, e.blow);
    else if (e.kind == ClientEvent::Kind::drain_replica)
      world.drain_replica(e.replica);
    else if (e.kind == ClientEvent::Kind::undrain_replica)
      world.undrain_replica(e.replica);
    else
      world.drain();
  }
  world.run(50'000);
  if (world.violation().empty()) world.finish();
  outcome.violation = world.violation();
  outcome.messages = world.messages();
  count(world, outcome.coverage);
  outcome.lora = world.lora_core().stats();
  outcome.replicas = replica_counts(world);
  outcome.log = std::move(world.log);
  if (options.record) outcome.recording = world.recording();
  return outcome;
}

std::string leave_recording(const Scenario& scenario, const Faults& faults, std::size_t events) {
  Scenario s = scenario;
  s.world.record = true;
  return look_at(run_scenario(s, faults, events).recording, "sim-seed-" + std::to_string(s.world.seed));
}

std::size_t shrink(const Scenario& s, const Faults& faults) {
  for (std::size_t n = 1; n < s.events.size(); ++n)
    if (!run_scenario(s, faults, n).violation.empty()) return n;
  return s.events.size();
}

}  // namespace troupe::sim
