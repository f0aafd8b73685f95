// Small lives, message by message, as text: a change of protocol shows as a readable difference. To accept one, run
// the test with TROUPE_GOLDEN_OUT set to a folder, and copy what it writes there to tests/sim/golden/.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "actors/trace/check.h"
#include "actors/trace/replay.h"
#include "tests/sim/workload.h"
#include "tests/sim/world.h"

namespace troupe::sim {
namespace {

namespace trace = actors::trace;

struct Golden {
  const char* name;
  const char* shows;  // a part of the text, without which it would not be what its name says
  void (*set)(WorldOptions&);
  void (*live)(World&);
};

void steps(World& w, int n) {
  for (; n > 0; --n) w.step();
}

void post(World& w, std::uint64_t client, std::uint32_t prompt, std::uint32_t tokens, const std::function<void(Request&)>& change = {}) {
  Request q = greedy_request(client, prompt, tokens);
  if (change) change(q);
  w.post(q, nullptr);
}

// What the undisturbed stream of such a request is.
std::vector<Token> stream(std::uint32_t prompt, std::uint32_t tokens) {
  const SimDeviceOptions d = WorldOptions{}.device;
  return expected_tokens(greedy_request(1, prompt, tokens), sim_model(d), d);
}

const Golden kGolden[] = {
    {"plain_decode", "DecodeFed{n=1, fed=1}", [](WorldOptions&) {}, [](World& w) { post(w, 1, 5, 4); }},
    {"depth_one", "Decode{n=1}", [](WorldOptions& o) { o.depth = 1; }, [](World& w) { post(w, 1, 5, 4); }},
    {"arrivals", "Mixed{", [](WorldOptions&) {},
     [](World& w) {
       post(w, 1, 5, 6);
       steps(w, 20);
       post(w, 2, 4, 3);
       steps(w, 9);
       post(w, 3, 3, 2);
     }},
    {"chunked_prefill", "s1.65536 e0 @6", [](WorldOptions& o) { o.step_tokens = 6; }, [](World& w) { post(w, 1, 15, 3); }},
    {"over_run", "stop", [](WorldOptions&) {},
     [](World& w) { post(w, 1, 5, 9, [](Request& q) { q.stop.stop_token_ids = {stream(5, 9)[2]}; }); }},
    {"redo", "Rollback", [](WorldOptions&) {},
     [](World& w) {
       // The second token closes the thinking block, and bars what the row in flight would choose.
       post(w, 1, 5, 6, [](Request& q) { q.think = Think{stream(5, 9)[1], stream(5, 9)[2], 1}; });
     }},
    {"preempt", "Opened 2#2 s1.",
     [](WorldOptions& o) {
       o.device.kv_blocks = 6;
       o.prefix_cache = false;
     },
     [](World& w) {
       post(w, 1, 8, 10);
       post(w, 2, 8, 10);
     }},
    {"spill", "StateRead s1.131073 ok",
     [](WorldOptions& o) {
       o.device.kv_blocks = 6;
       o.device.spill_places = 1;
       o.spill_min_blocks = 0;
       o.prefix_cache = false;
     },
     [](World& w) {
       post(w, 1, 8, 10);
       post(w, 2, 8, 10);
     }},
    {"snapshot", "SsmSnapshotRestore{", [](WorldOptions& o) { o.device.ssm_states = 12; },
     [](World& w) {
       post(w, 1, 10, 4);
       w.run();
       post(w, 1, 12, 3);
     }},
    {"spill_state", "CopyBlocks t1.3 out place=0 state=4 0+2",
     [](WorldOptions& o) {
       o.device.kv_blocks = 6;
       o.device.ssm_states = 12;
       o.device.spill_places = 1;
       o.spill_min_blocks = 0;
       o.prefix_cache = false;
     },
     [](World& w) {
       post(w, 1, 8, 10);
       post(w, 2, 8, 10);
     }},
    {"lora", "ChangeTable", [](WorldOptions& o) { o.device.max_loras = 2; },
     [](World& w) {
       LoraCommand load;
       load.kind = LoraCommand::Kind::promote_disk;
       load.name = "a";
       load.path = "file1";
       w.lora(load);
       post(w, 1, 5, 6, [](Request& q) { q.adapter = "a"; });
       steps(w, 30);
       LoraCommand unload;
       unload.kind = LoraCommand::Kind::unload;
       unload.name = "a";
       w.lora(unload);
     }},
    {"cancel", "CancelReply 1#1 cancelled_running", [](WorldOptions&) {},
     [](World& w) {
       post(w, 1, 5, 30);
       steps(w, 30);
       w.cancel(1);
     }},
    {"deadline", "deadline", [](WorldOptions&) {}, [](World& w) { post(w, 1, 5, 30, [](Request& q) { q.deadline = TimeNs{25'000}; }); }},
    {"sampled", "Sampled{", [](WorldOptions&) {},
     [](World& w) {
       post(w, 1, 5, 4, [](Request& q) {
         q.sampling.temperature = 0.7f;
         q.sampling.seed = 7;
       });
     }},
};

std::string text_of(const trace::Recording& r) {
  std::string out;
  for (const trace::Event& e : r.events) {
    if (e.head.kind != trace::RecordKind::sent) continue;
    out += actors::seq_label(e.head.seq) + "  > " + actors::label(e.head.to) + "  " + trace::label(e.message);
    if (e.head.cause != 0) out += "  (after " + actors::seq_label(e.head.cause) + ")";
    out += '\n';
    if (const auto* launch = std::get_if<Launch>(&e.message)) {
      for (const Effect& effect : launch->plan->effects) out += "    " + label(effect) + '\n';
      for (const Row& row : launch->plan->rows) out += "    " + label(row) + '\n';
    } else if (const auto* deliver = std::get_if<Deliver>(&e.message)) {
      for (const TokenEvent& t : deliver->batch->events)
        out += "    " + label(t.request) + " token " + std::to_string(t.index) + " = " + std::to_string(t.id) + '\n';
      for (const Finish& f : deliver->batch->finishes) out += "    " + label(f) + '\n';
    }
  }
  return out;
}

class GoldenLives : public testing::TestWithParam<Golden> {};

TEST_P(GoldenLives, TheMessagesAreTheSame) {
  WorldOptions options;
  options.record = options.in_order = true;
  GetParam().set(options);
  World world(options);
  GetParam().live(world);
  world.run();
  world.finish();
  EXPECT_EQ(world.violation(), "");
  const auto bytes = world.recording();
  const auto r = trace::parse_recording(bytes.data(), bytes.size());
  ASSERT_TRUE(r) << r.error().what;
  const auto checked = trace::check(r.value());
  ASSERT_TRUE(checked);
  EXPECT_FALSE(checked.value().finding) << checked.value().finding->what;
  EXPECT_FALSE(trace::replay(r.value()).value().difference);

  const std::string text = text_of(r.value()), file = std::string(GetParam().name) + ".txt";
  EXPECT_NE(text.find(GetParam().shows), std::string::npos) << GetParam().shows << " is not in\n" << text;
  if (const char* out = std::getenv("TROUPE_GOLDEN_OUT")) std::ofstream(std::string(out) + "/" + file) << text;
  std::ifstream in("tests/sim/golden/" + file);
  std::stringstream golden;
  golden << in.rdbuf();
  EXPECT_EQ(golden.str(), text) << "the protocol has changed: see the top of this test to accept it";
}

INSTANTIATE_TEST_SUITE_P(All, GoldenLives, testing::ValuesIn(kGolden), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::sim
