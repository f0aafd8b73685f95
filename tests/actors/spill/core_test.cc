// The spill actor's core over real files: pieces, checksums, limits, and that no file is left.
#include "actors/spill/core.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <optional>
#include <vector>

#include "actors/spill/posix_files.h"
#include "tests/actors/spill/folder.h"

namespace troupe::actors {
namespace {

constexpr std::uint64_t kBlockBytes = 64;

class SpillCoreTest : public testing::Test {
 protected:
  void make(std::uint64_t limit = 1 << 20) {
    core.reset();
    files.reset();
    files = PosixStateFiles::open(folder.path()).value();
    core = std::make_unique<SpillCore>(SpillConfig{limit}, model, files);
  }
  StatePiece piece(SeqId seq, std::uint32_t n_blocks, std::uint32_t begin, std::uint32_t count, std::vector<std::byte>& memory) {
    StatePiece p;
    p.place = 1;
    p.seq = seq;
    p.positions = n_blocks * 4 - 1;
    p.n_blocks = n_blocks - n_parts;
    p.n_parts = n_parts;
    p.block_bytes = kBlockBytes;
    p.begin = begin;
    p.count = count;
    memory.resize(count * kBlockBytes);
    p.data = reinterpret_cast<std::uintptr_t>(memory.data());
    return p;
  }
  ErrorCode write(SeqId seq, std::uint32_t n_blocks, std::uint32_t begin, std::uint32_t count) {
    std::vector<std::byte> memory;
    const StatePiece p = piece(seq, n_blocks, begin, count, memory);
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = content(seq, begin * kBlockBytes + i);
    core->on(WriteState{{}, p}, 0, out);
    StateWritten answer;
    out.drain([&](auto&& m) {
      if constexpr (std::is_same_v<std::decay_t<decltype(m)>, StateWritten>) answer = m;
    });
    EXPECT_EQ(answer.place, 1u);
    EXPECT_EQ(answer.seq, seq);
    error = answer.error;
    return error.code;
  }
  ErrorCode read(SeqId seq, std::uint32_t n_blocks, std::uint32_t begin, std::uint32_t count) {
    std::vector<std::byte> memory;
    core->on(ReadState{{}, piece(seq, n_blocks, begin, count, memory)}, 0, out);
    StateRead answer;
    out.drain([&](auto&& m) {
      if constexpr (std::is_same_v<std::decay_t<decltype(m)>, StateRead>) answer = m;
    });
    EXPECT_EQ(answer.seq, seq);
    error = answer.error;
    right = true;
    for (std::size_t i = 0; i < memory.size(); ++i) right = right && memory[i] == content(seq, begin * kBlockBytes + i);
    return error.code;
  }
  void drop(SeqId seq) { core->on(DropState{{}, seq}, 0, out); }
  static std::byte content(SeqId seq, std::size_t at) { return static_cast<std::byte>(seq.number * 7 + at * 13 + at / 256); }
  void edit(const std::string& name, std::size_t at, char value) {
    std::fstream file(folder.file(name), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(value);
  }

  test::Folder folder;
  ModelInfo model = [] {
    ModelInfo m;
    m.name = "Tiny";
    m.block_size = 4;
    return m;
  }();
  std::shared_ptr<PosixStateFiles> files;
  std::unique_ptr<SpillCore> core;
  SpillOutbox out;
  Error error;
  bool right = false;
  std::uint32_t n_parts = 0;  // of a piece's blocks: recurrent state
};

const SeqId kA{1, 5}, kB{1, 6};

TEST_F(SpillCoreTest, WhatIsWrittenInPiecesIsReadInOtherPiecesAndIsGone) {
  make();
  ASSERT_EQ(write(kA, 5, 0, 2), ErrorCode::none);
  ASSERT_EQ(write(kB, 1, 0, 1), ErrorCode::none);
  ASSERT_EQ(write(kA, 5, 2, 2), ErrorCode::none);
  ASSERT_EQ(write(kA, 5, 4, 1), ErrorCode::none);
  EXPECT_EQ(core->files(), 2u);
  EXPECT_EQ(core->bytes(), 2 * kStateHeaderBytes + 6 * kBlockBytes);
  ASSERT_EQ(read(kA, 5, 0, 3), ErrorCode::none);
  EXPECT_TRUE(right);
  ASSERT_EQ(read(kB, 1, 0, 1), ErrorCode::none);
  EXPECT_TRUE(right);
  ASSERT_EQ(read(kA, 5, 3, 2), ErrorCode::none);
  EXPECT_TRUE(right);
  EXPECT_EQ(core->files(), 0u);
  EXPECT_EQ(core->bytes(), 0u);
  EXPECT_EQ(folder.count(), 0u);
  EXPECT_EQ(read(kA, 5, 0, 3), ErrorCode::not_found);
}

TEST_F(SpillCoreTest, RecurrentStateLiesBehindTheBlocks) {
  make();
  n_parts = 2;
  ASSERT_EQ(write(kA, 5, 0, 3), ErrorCode::none);
  ASSERT_EQ(write(kA, 5, 3, 2), ErrorCode::none);
  EXPECT_EQ(core->bytes(), kStateHeaderBytes + 5 * kBlockBytes);
  ASSERT_EQ(read(kA, 5, 0, 3), ErrorCode::none);
  EXPECT_TRUE(right);
  ASSERT_EQ(read(kA, 5, 3, 2), ErrorCode::none);
  EXPECT_TRUE(right);
  EXPECT_EQ(core->files(), 0u);
  // The same bytes are not those of a sequence whose parts are fewer.
  ASSERT_EQ(write(kA, 5, 0, 5), ErrorCode::none);
  n_parts = 1;
  EXPECT_EQ(read(kA, 5, 0, 5), ErrorCode::bad_file);
}

TEST_F(SpillCoreTest, ADamagedFileIsNotUsedAndIsGone) {
  make();
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{20}, std::size_t{40}, kStateHeaderBytes, kStateHeaderBytes + 2 * kBlockBytes - 1}) {
    ASSERT_EQ(write(kA, 2, 0, 2), ErrorCode::none);
    edit("1-5.kv", at, 0x5A);
    EXPECT_EQ(read(kA, 2, 0, 2), ErrorCode::bad_file) << "byte " << at;
    EXPECT_FALSE(error.what.empty());
    EXPECT_EQ(core->files(), 0u);
    EXPECT_EQ(folder.count(), 0u);
  }
}

TEST_F(SpillCoreTest, ALengthThatIsNotTheRightOneIsNotUsed) {
  make();
  const std::uint64_t whole = kStateHeaderBytes + 2 * kBlockBytes;
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{kStateHeaderBytes - 1}, std::uint64_t{kStateHeaderBytes}, whole - 1, whole + 1}) {
    ASSERT_EQ(write(kA, 2, 0, 2), ErrorCode::none);
    std::filesystem::resize_file(folder.file("1-5.kv"), bytes);
    EXPECT_EQ(read(kA, 2, 0, 2), ErrorCode::bad_file) << bytes;
    EXPECT_EQ(folder.count(), 0u);
  }
}

TEST_F(SpillCoreTest, AnotherSequencesFileOrAnotherShapeIsNotUsed) {
  make();
  ASSERT_EQ(write(kA, 2, 0, 2), ErrorCode::none);
  ASSERT_EQ(write(kB, 2, 0, 2), ErrorCode::none);
  std::filesystem::rename(folder.file("1-6.kv"), folder.file("1-5.kv"));
  EXPECT_EQ(read(kA, 2, 0, 2), ErrorCode::bad_file);
  ASSERT_EQ(write(kA, 2, 0, 2), ErrorCode::none);
  EXPECT_EQ(read(kA, 3, 0, 3), ErrorCode::bad_file);
  EXPECT_EQ(read(kB, 2, 0, 2), ErrorCode::io_failed) << "its file was taken away";
  EXPECT_EQ(core->files(), 0u);
}

TEST_F(SpillCoreTest, AFileOfAnotherModelIsNotUsed) {
  make();
  ASSERT_EQ(write(kA, 2, 0, 2), ErrorCode::none);
  std::filesystem::copy(folder.file("1-5.kv"), folder.file("keep"));
  core.reset();
  files.reset();
  model.arithmetic_id = "other";
  make();
  ASSERT_EQ(write(kA, 2, 0, 2), ErrorCode::none);
  std::filesystem::rename(folder.file("keep"), folder.file("1-5.kv"));
  EXPECT_EQ(read(kA, 2, 0, 2), ErrorCode::bad_file);
  EXPECT_NE(error.what.find("another model"), std::string::npos);
}

TEST_F(SpillCoreTest, TheLimitHoldsForAllFilesTogether) {
  make(2 * kStateHeaderBytes + 3 * kBlockBytes);
  ASSERT_EQ(write(kA, 2, 0, 1), ErrorCode::none);
  EXPECT_EQ(write(kB, 2, 0, 2), ErrorCode::overloaded) << "what is not yet written counts";
  EXPECT_EQ(write(kB, 1, 0, 1), ErrorCode::none);
  ASSERT_EQ(write(kA, 2, 1, 1), ErrorCode::none);
  drop(kA);
  EXPECT_EQ(write(kA, 2, 0, 2), ErrorCode::none);
  make(0);
  EXPECT_EQ(write(kA, 1, 0, 1), ErrorCode::overloaded);
  EXPECT_EQ(folder.count(), 0u);
}

TEST_F(SpillCoreTest, AFolderThatVanishesIsATypedError) {
  make();
  ASSERT_EQ(write(kA, 2, 0, 1), ErrorCode::none);
  std::filesystem::remove_all(folder.path());
  EXPECT_EQ(write(kA, 2, 1, 1), ErrorCode::io_failed) << "it cannot get its name";
  EXPECT_EQ(write(kB, 1, 0, 1), ErrorCode::io_failed);
  EXPECT_EQ(core->files(), 0u);
  EXPECT_EQ(core->bytes(), 0u);
}

TEST_F(SpillCoreTest, PiecesOutOfOrderAreRefused) {
  make();
  EXPECT_EQ(write(kA, 3, 1, 1), ErrorCode::internal);
  ASSERT_EQ(write(kA, 3, 0, 1), ErrorCode::none);
  EXPECT_EQ(write(kA, 3, 2, 1), ErrorCode::internal);
  EXPECT_EQ(folder.count(), 0u) << "half a file is of no use";
  ASSERT_EQ(write(kA, 2, 0, 2), ErrorCode::none);
  EXPECT_EQ(read(kA, 2, 1, 1), ErrorCode::internal);
  EXPECT_EQ(read(kA, 2, 0, 2), ErrorCode::not_found);
}

TEST_F(SpillCoreTest, DroppedFilesAndThoseOfAnEndAreGone) {
  make();
  ASSERT_EQ(write(kA, 2, 0, 1), ErrorCode::none);
  ASSERT_EQ(write(kB, 1, 0, 1), ErrorCode::none);
  drop(kA);
  drop(kA);
  EXPECT_EQ(folder.count(), 1u);
  ASSERT_EQ(write(kA, 2, 0, 1), ErrorCode::none);
  core.reset();
  EXPECT_EQ(folder.count(), 0u);
}

}  // namespace
}  // namespace troupe::actors
