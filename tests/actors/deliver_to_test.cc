#include "actors/deliver_to.h"

#include <future>

#include "tests/actors/rig.h"

namespace troupe {
namespace {

struct Received {
  std::vector<Token> tokens;
  std::string text;
  std::promise<FinishReason> ended;
};

TokenReceiver::behavior_type receive(TokenReceiver::pointer self, Received* into) {
  return {[self, into](const Deliver& m) {
    for (const TokenEvent& e : m.batch->events) {
      EXPECT_EQ(e.index, into->tokens.size());
      into->tokens.push_back(e.id);
      into->text += m.batch->text.substr(e.text_begin, e.text_size);
    }
    for (const Finish& f : m.batch->finishes) {
      into->text += m.batch->text.substr(f.text_begin, f.text_size);
      into->ended.set_value(f.reason);
      self->quit();
    }
  }};
}

TEST(DeliverTo, AnActorOfAnotherSystemGetsWhatACallbackWould) {
  const device::ScriptedOptions script;
  test::Rig rig = test::make_rig({}, script);
  const Request request = test::make_request(3, 6, 30, script);
  ASSERT_TRUE(rig.runtime->submit(request, rig.clients->callback(3)));
  rig.clients->wait_ended(1);

  Received received;
  caf::actor_system_config config;
  caf::actor_system system{config};
  ASSERT_TRUE(rig.runtime->submit(request, deliver_to(system.spawn(receive, &received))));
  EXPECT_EQ(received.ended.get_future().get(), rig.clients->record(3).finish->reason);
  EXPECT_EQ(received.tokens, test::expected(request, script));
  EXPECT_EQ(received.text, rig.clients->record(3).text);
  EXPECT_TRUE(rig.runtime->stop());
}

}  // namespace
}  // namespace troupe
