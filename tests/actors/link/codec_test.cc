#include "actors/link/codec.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/messages/samples.h"

namespace troupe::actors::link {
namespace {

template <class M>
std::string bytes_of(const M& m) {
  trace::Bytes bytes;
  trace::Encoder(bytes).put(m);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Hello hello() {
  Hello h;
  h.owner = 77;
  h.replica = 1;
  h.ref = {3, 2};
  h.heartbeat = 500'000'000;
  h.silence = 3'000'000'000;
  return h;
}
Welcome welcome() {
  Welcome w;
  w.node = "a";
  w.replicas = {"host:0", "host:1"};
  w.model.vocab_size = 100;
  w.model.context_length = 1000;
  w.tokens = 9;
  return w;
}
Refused refused() { return {{ErrorCode::overloaded, "no room"}}; }

// One frame and what is read of it.
Result<LinkMessage> cut_and_read(std::span<const std::uint8_t> frame, FrameReader& reader) {
  FrameCutter cutter(&most_bytes);
  cutter.put(frame);
  TROUPE_TRY(const auto whole, cutter.next());
  if (!whole) return Error{ErrorCode::bad_file, "not whole"};
  return reader.read(*whole);
}

// A reader that has had its greeting, if it is due one.
FrameReader greeted(Side sender) {
  FrameReader reader(sender);
  FrameWriter writer;
  EXPECT_TRUE(sender == Side::runtime ? cut_and_read(writer.frame(hello()), reader) : cut_and_read(writer.frame(welcome()), reader));
  return reader;
}

template <class F>
void for_each_link_message(F&& f) {
  f(hello());
  f(welcome());
  f(refused());
  f(Heartbeat{});
  test::for_each_sample([&]<class M>(const M& m) {
    if constexpr (std::is_same_v<M, Deliver>) {
      TokenBatch batch = *m.batch;  // the sample's parts are not its text's
      batch.text.resize(100, 'x');
      batch.best.resize(100);
      f(Deliver{m.ctx, Shared<TokenBatch>::of(batch)});
    } else if constexpr (kToNode<M> || kFromNode<M>) {
      f(m);
    }
  });
}

TEST(Codec, EveryMessageComesBack) {
  std::size_t n = 0;
  for_each_link_message([&]<class M>(const M& m) {
    ++n;
    for (const Side side : {Side::runtime, Side::node}) {
      FrameWriter writer;
      (void)writer.frame(Heartbeat{});  // takes number 1
      FrameReader reader = greeted(side);
      auto back = cut_and_read(writer.frame(m), reader);
      const bool may = side == Side::runtime ? kToNode<M> : kFromNode<M>;
      ASSERT_EQ(back.has_value(), may) << typeid(M).name() << (back ? "" : back.error().what);
      if (may) {
        EXPECT_EQ(bytes_of(std::get<M>(back.value())), bytes_of(m));
      }
    }
  });
  EXPECT_GE(n, std::variant_size_v<LinkMessage>);
}

TEST(Codec, AnAdapterCrossesWhole) {
  AdapterFetched m;
  m.image = Shared<AdapterImage>::of({{1, 2, 3, 4}});
  FrameWriter writer;
  (void)writer.frame(Heartbeat{});
  FrameReader reader = greeted(Side::node);
  const auto back = cut_and_read(writer.frame(m), reader);
  ASSERT_TRUE(back) << back.error().what;
  EXPECT_EQ(std::get<AdapterFetched>(back.value()).image->bytes, m.image->bytes);
}

TEST(Codec, NoTruncationIsAMessage) {
  for_each_link_message([&]<class M>(const M& m) {
    const Side side = kToNode<M> ? Side::runtime : Side::node;
    FrameWriter writer;
    (void)writer.frame(Heartbeat{});
    const auto frame = writer.frame(m);
    for (std::size_t n = kFrameHead; n < frame.size(); ++n) {
      FrameReader reader = greeted(side);
      EXPECT_FALSE(reader.read({frame[4], frame.subspan(kFrameHead, n - kFrameHead)})) << typeid(M).name() << " " << n;
    }
  });
}

// Whatever a frame holds, it is refused or a message that can be written again, and what receivers rely on holds.
TEST(Codec, AnyMutationIsRefusedOrAMessage) {
  std::mt19937 random(1);
  std::size_t taken = 0, refused_frames = 0;
  for_each_link_message([&]<class M>(const M& m) {
    const Side side = kToNode<M> ? Side::runtime : Side::node;
    FrameWriter writer;
    (void)writer.frame(Heartbeat{});
    const auto frame = writer.frame(m);
    for (int i = 0; i < 2000; ++i) {
      std::vector<std::uint8_t> bytes(frame.begin(), frame.end());
      for (int k = 1 + static_cast<int>(random() % 4); k > 0; --k)
        bytes[4 + random() % (bytes.size() - 4)] = static_cast<std::uint8_t>(random());
      FrameReader reader = greeted(side);
      const auto back = reader.read({bytes[4], std::span(bytes).subspan(kFrameHead)});
      back ? ++taken : ++refused_frames;
      if (!back) continue;
      EXPECT_EQ(fault_of(back.value()), "");
      std::visit([](const auto& x) { (void)bytes_of(x); }, back.value());
    }
  });
  EXPECT_GT(taken, 1000u);
  EXPECT_GT(refused_frames, 1000u);
}

TEST(Codec, ALinkBeginsWithAHelloOfThisVersion) {
  FrameWriter writer;
  FrameReader first(Side::runtime);
  EXPECT_FALSE(cut_and_read(writer.frame(Heartbeat{}), first));

  Hello h = hello();
  h.version = kVersion + 1;
  FrameWriter again;
  FrameReader other(Side::runtime);
  const auto newer = cut_and_read(again.frame(h), other);
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code, ErrorCode::unsupported) << newer.error().what;
}

TEST(Codec, AFrameIsNeitherLostNorRepeated) {
  FrameWriter writer;
  FrameReader reader(Side::runtime);
  EXPECT_TRUE(cut_and_read(writer.frame(hello()), reader));
  (void)writer.frame(Heartbeat{});
  EXPECT_FALSE(cut_and_read(writer.frame(Heartbeat{}), reader)) << "a frame was left out";

  FrameWriter other;
  FrameReader twice(Side::node);
  const auto frame = other.frame(welcome());
  EXPECT_TRUE(cut_and_read(frame, twice));
  EXPECT_FALSE(cut_and_read(frame, twice)) << "a frame came twice";
}

TEST(Codec, WhatReceiversRelyOnIsChecked) {
  const auto refuses = [](const auto& m) { return !fault_of(m).empty(); };
  Admit admit;
  admit.id = {7, 1};
  EXPECT_TRUE(refuses(admit)) << "no request";
  admit.request = Shared<Request>::of(test::request());
  EXPECT_FALSE(refuses(admit));
  admit.id.client = 8;
  EXPECT_TRUE(refuses(admit)) << "another client's request";

  TokenBatch batch;
  batch.text = "abc";
  batch.events.push_back({});
  batch.events[0].text_begin = 2;
  batch.events[0].text_size = 1;
  EXPECT_FALSE(refuses(Deliver{{}, Shared<TokenBatch>::of(batch)}));
  batch.events[0].text_size = 2;
  EXPECT_TRUE(refuses(Deliver{{}, Shared<TokenBatch>::of(batch)}));
  batch.events[0].text_begin = 0xFFFFFFFF;
  EXPECT_TRUE(refuses(Deliver{{}, Shared<TokenBatch>::of(batch)})) << "begin + size overflows";
  batch.events[0] = {};
  batch.events[0].best_size = 1;
  EXPECT_TRUE(refuses(Deliver{{}, Shared<TokenBatch>::of(batch)}));
  EXPECT_TRUE(refuses(Deliver{}));

  Finish finish;
  finish.reason = static_cast<FinishReason>(5);
  batch.events.clear();
  batch.finishes.push_back(finish);
  EXPECT_TRUE(refuses(Deliver{{}, Shared<TokenBatch>::of(batch)}));

  CancelReply reply;
  reply.outcome = static_cast<CancelOutcome>(4);
  EXPECT_TRUE(refuses(reply));
  LoraSubmit submit;
  submit.command.kind = static_cast<LoraCommand::Kind>(6);
  EXPECT_TRUE(refuses(submit));
  EXPECT_TRUE(refuses(ReplicaLost{{}, {}, {static_cast<ErrorCode>(63), ""}}));
  EXPECT_STRNE(name(kLastErrorCode), "") << "the list of errors has grown: raise kLastErrorCode";
  Hello h = hello();
  h.silence = h.heartbeat;
  EXPECT_TRUE(refuses(h));
}

TEST(Frame, ComesInAnyPieces) {
  FrameWriter writer;
  std::vector<std::uint8_t> all;
  for (int i = 0; i < 50; ++i) {
    const auto f = writer.frame(Refused{{ErrorCode::closed, std::string(static_cast<std::size_t>(i) * 7, 'x')}});
    all.insert(all.end(), f.begin(), f.end());
  }
  for (std::size_t piece : {1u, 2u, 3u, 7u, 100u, 5000u}) {
    FrameCutter cutter(&most_bytes);
    std::size_t n = 0;
    for (std::size_t at = 0; at < all.size(); at += piece) {
      cutter.put(std::span(all).subspan(at, std::min(piece, all.size() - at)));
      for (auto f = cutter.next(); f && f.value(); f = cutter.next()) ++n;
    }
    EXPECT_EQ(n, 50u);
    EXPECT_EQ(cutter.held(), 0u);
  }
}

// Eight bytes that announce hundreds of megabytes cost eight bytes.
TEST(Frame, AnAnnouncementTakesNoMemory) {
  const std::vector<std::uint8_t> huge{0, 0, 0xD0, 0x17, type_of<Admit>(), 1, 2, 3};
  FrameCutter cutter(&most_bytes);
  cutter.put(huge);
  EXPECT_FALSE(cutter.next());
  const std::vector<std::uint8_t> adapter{0, 0, 0x50, 0x05, type_of<LoraSubmit>(), 1, 2, 3};
  FrameCutter patient(&most_bytes);
  patient.put(adapter);
  const auto nothing = patient.next();
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(nothing.value());
  EXPECT_EQ(patient.held(), 8u);
}

}  // namespace
}  // namespace troupe::actors::link
