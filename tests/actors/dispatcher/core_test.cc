#include "actors/dispatcher/core.h"

#include <gtest/gtest.h>

#include <utility>
#include <variant>
#include <vector>

namespace troupe::actors {
namespace {

ModelInfo model() {
  ModelInfo m;
  m.vocab_size = 100;
  m.context_length = 64;
  m.kv_blocks = 16;
  m.n_slots = 4;
  return m;
}

Ended ended(const std::vector<RequestId>& ids) {
  Ended m;
  for (const RequestId& id : ids) m.requests.push_back({id, 0});
  return m;
}

struct Bench {
  DispatcherCore core{DispatcherConfig{2}, model()};
  DispatcherOutbox out;
  TimeNs now = 1;

  template <class M>
  std::vector<DispatcherOutbox::Item> on(const M& m) {
    core.on(m, now, out);
    std::vector<DispatcherOutbox::Item> sent = out.items();
    out.clear();
    return sent;
  }
  // The reply, and what else was sent.
  std::pair<SubmitReply, std::vector<DispatcherOutbox::Item>> submit(std::uint64_t client, Optional<std::uint64_t> seed = {}) {
    Request r;
    r.client = client;
    r.prompt = {1, 2};
    r.sampling.seed = seed;
    Submit m;
    m.request = Shared<Request>::of(r);
    m.drawn_seed = 555;
    auto sent = on(m);
    SubmitReply reply;
    std::size_t replies = 0;
    for (auto it = sent.begin(); it != sent.end();) {
      if (const auto* x = std::get_if<SubmitReply>(&*it)) {
        reply = *x;
        ++replies;
        it = sent.erase(it);
      } else {
        ++it;
      }
    }
    EXPECT_EQ(replies, 1u);
    return {reply, sent};
  }
};

TEST(Dispatcher, AdmitsWithAFreshGenerationAndASeed) {
  Bench b;
  auto [first, sent] = b.submit(7);
  EXPECT_EQ(first.error.code, ErrorCode::none);
  ASSERT_EQ(sent.size(), 1u);
  const Admit admit = std::get<Admit>(sent[0]);
  EXPECT_EQ(admit.id, first.request);
  EXPECT_EQ(admit.seed, 555u);
  EXPECT_EQ(b.core.live(), 1u);
  b.on(ended({first.request}));
  EXPECT_EQ(b.core.live(), 0u);
  auto [second, again] = b.submit(7, 9);
  EXPECT_GT(second.request.generation, first.request.generation);
  EXPECT_EQ(std::get<Admit>(again[0]).seed, 9u);
}

TEST(Dispatcher, RefusesALiveIdALimitAndBadRequests) {
  Bench b;
  b.submit(1);
  auto [same, s1] = b.submit(1);
  EXPECT_EQ(same.error.code, ErrorCode::bad_request);
  EXPECT_TRUE(s1.empty());
  b.submit(2);
  auto [over, s2] = b.submit(3);
  EXPECT_EQ(over.error.code, ErrorCode::overloaded);
  EXPECT_GT(over.retry_after, 0);
  EXPECT_TRUE(s2.empty());
  EXPECT_EQ(b.core.live(), 2u);
  auto none = b.on(Submit{});
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(std::get<SubmitReply>(none[0]).error.code, ErrorCode::bad_request);
}

// The hint follows the pace at which requests end, within bounds.
TEST(Dispatcher, SaysWhenToTryAgain) {
  constexpr TimeNs kSecond = 1'000'000'000;
  Bench b;
  std::uint64_t client = 0;
  const auto hint = [&] { return b.submit(1000).first.retry_after; };
  RequestId older = b.submit(++client).first.request, newer = b.submit(++client).first.request;
  EXPECT_EQ(hint(), kSecond / 10) << "nothing is known yet";
  for (int i = 0; i < 40; ++i) {
    b.now += 4 * kSecond;
    b.on(ended({older}));
    older = std::exchange(newer, b.submit(++client).first.request);
  }
  EXPECT_NEAR(static_cast<double>(hint()), 4e9, 1e8);
  b.now += 9 * kSecond;
  EXPECT_EQ(hint(), 9 * kSecond) << "longer than the pace says";
  b.on(ended({older, newer}));
  older = b.submit(++client).first.request, newer = b.submit(++client).first.request;
  EXPECT_NEAR(static_cast<double>(hint()), 4.125e9, 1e8) << "two at once are half the pace each";
  for (int i = 0; i < 40; ++i) {
    b.now += 1000;
    b.on(ended({older}));
    older = std::exchange(newer, b.submit(++client).first.request);
  }
  EXPECT_EQ(hint(), kSecond / 10);
  b.now += 3600 * kSecond;
  EXPECT_EQ(hint(), 60 * kSecond);
}

// An end of an earlier generation does not end the later one.
TEST(Dispatcher, KeepsGenerationsApart) {
  Bench b;
  const RequestId first = b.submit(1).first.request;
  b.on(ended({first}));
  b.submit(1);
  b.on(ended({first, {42, 1}}));
  EXPECT_EQ(b.core.live(), 1u);
}

TEST(Dispatcher, CancelsByClient) {
  Bench b;
  EXPECT_EQ(std::get<CancelReply>(b.on(Cancel{{}, 5})[0]).outcome, CancelOutcome::not_found);
  const RequestId id = b.submit(5).first.request;
  const auto sent = b.on(Cancel{{}, 5});
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(std::get<CancelRequest>(sent[0]).id, id);
  const auto back = b.on(CancelReply{{}, id, CancelOutcome::cancelled_running, 3});
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(std::get<CancelReply>(back[0]).tokens, 3u);
  b.on(ended({id}));
  EXPECT_EQ(std::get<CancelReply>(b.on(Cancel{{}, 5})[0]).outcome, CancelOutcome::already_finished);
}

// What it remembers of ended requests is bounded by max_live.
TEST(Dispatcher, ForgetsTheOldestEnd) {
  Bench b;
  for (std::uint64_t client = 1; client <= 3; ++client) b.on(ended({b.submit(client).first.request}));
  EXPECT_EQ(std::get<CancelReply>(b.on(Cancel{{}, 1})[0]).outcome, CancelOutcome::not_found);
  EXPECT_EQ(std::get<CancelReply>(b.on(Cancel{{}, 2})[0]).outcome, CancelOutcome::already_finished);
  EXPECT_EQ(std::get<CancelReply>(b.on(Cancel{{}, 3})[0]).outcome, CancelOutcome::already_finished);
}

TEST(Dispatcher, DrainsOnceAndRefusesFromThenOn) {
  Bench b;
  b.submit(1);
  EXPECT_TRUE(std::holds_alternative<Drain>(b.on(Drain{}).at(0)));
  EXPECT_TRUE(b.on(Drain{}).empty());
  EXPECT_EQ(b.submit(2).first.error.code, ErrorCode::closed);
  EXPECT_TRUE(std::holds_alternative<Drained>(b.on(Drained{}).at(0)));
  EXPECT_TRUE(std::holds_alternative<Drained>(b.on(Drain{}).at(0)));
}

}  // namespace
}  // namespace troupe::actors
