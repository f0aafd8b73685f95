// The adapter table in the router (R9).
#include <gtest/gtest.h>

#include "tests/actors/router/rig.h"

namespace troupe::actors {
namespace {

TEST_F(RouterTest, TheAdapterTableChangesWhenNothingNamesWhatGoes) {
  show({1, 1});
  ASSERT_TRUE(lora);
  EXPECT_EQ(lora->error.code, ErrorCode::none);
  const SeqId a = open(1, {1, 1}), base = open(2);
  ASSERT_EQ(launch(1, {host_row(a, 0, 1, {1, 1}), host_row(base, 0)}), ErrorCode::none);
  lora_change({2, 2}, {1, 1});
  EXPECT_FALSE(change) << "a live sequence names it";
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  EXPECT_FALSE(change) << "it is released, and a step in flight still names it";
  complete(1);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->show, (AdapterRef{2, 2}));
  EXPECT_EQ(change->hide, (AdapterRef{1, 1}));
  EXPECT_FALSE(lora);
  open(3, {1, 1});
  EXPECT_EQ(opened->error.code, ErrorCode::adapter_gone);
  send(TableChanged{});
  ASSERT_TRUE(lora);
  EXPECT_EQ(lora->ack.adapter, (AdapterRef{2, 2}));
  open(4, {1, 1});
  EXPECT_EQ(opened->error.code, ErrorCode::adapter_gone);
  open(5, {2, 2});
  EXPECT_EQ(opened->error.code, ErrorCode::none);
}

TEST_F(RouterTest, AChangeOfWhatNobodyNamesNeedsNoQuietDevice) {
  show({1, 1});
  const SeqId a = open(1, {1, 1});
  ASSERT_EQ(launch(1, {host_row(a, 0, 1, {1, 1})}), ErrorCode::none);
  lora_change({2, 2}, {});
  EXPECT_TRUE(change) << "others are served meanwhile";
}

TEST_F(RouterTest, AChangeCanBeWithdrawnUntilItIsDone) {
  show({1, 1});
  open(1, {1, 1});
  lora_change({}, {1, 1});
  send(Lora{{}, {}, {}, {}, true});
  ASSERT_TRUE(lora);
  EXPECT_EQ(lora->error.code, ErrorCode::not_quiescent);
  EXPECT_FALSE(change);
  lora_change({2, 2}, {});
  send(Lora{{}, {}, {}, {}, true});
  EXPECT_FALSE(lora) << "it is with the stream actor";
  send(TableChanged{});
  ASSERT_TRUE(lora);
  EXPECT_EQ(lora->error.code, ErrorCode::none);
}

TEST_F(RouterTest, WhatTheAdapterTableRefuses) {
  show({1, 1});
  const auto refusal = [&](AdapterRef show, AdapterRef hide) {
    lora_change(show, hide);
    EXPECT_FALSE(change);
    return lora ? lora->error.code : ErrorCode::none;
  };
  EXPECT_EQ(refusal({}, {}), ErrorCode::bad_request);
  EXPECT_EQ(refusal({4, 2}, {}), ErrorCode::bad_request);
  EXPECT_EQ(refusal({1, 2}, {}), ErrorCode::slot_in_use);
  EXPECT_EQ(refusal({2, 2}, {1, 9}), ErrorCode::unknown_adapter);
  lora_change({2, 2}, {});
  send(Lora{{}, {}, {3, 3}, {}});
  EXPECT_EQ(lora->error.code, ErrorCode::overloaded) << "one at a time";
  send(TableChanged{{}, {ErrorCode::device_failed, "no"}});
  EXPECT_EQ(lora->error.code, ErrorCode::device_failed);
  open(1, {2, 2});
  EXPECT_EQ(opened->error.code, ErrorCode::adapter_gone) << "a change that failed has changed nothing";
}

TEST_F(RouterTest, ARowRunsUnderItsSequencesAdapter) {
  show({1, 1});
  const SeqId a = open(1, {1, 1});
  EXPECT_EQ(launch(1, {host_row(a, 0)}), ErrorCode::bad_plan);
  EXPECT_EQ(launch(2, {host_row(a, 0, 1, {1, 1})}), ErrorCode::none);
  EXPECT_EQ(enqueued.back()->rows[0].adapter_slot, 1u);
}

}  // namespace
}  // namespace troupe::actors
