// Files in a folder: whole or not there; leftovers go, what is not ours stays; one user at a time.
#include "actors/spill/posix_files.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "tests/actors/spill/folder.h"

namespace troupe::actors {
namespace {

using test::Folder;

std::vector<std::byte> bytes_of(std::size_t n, unsigned seed) {
  std::vector<std::byte> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(i * 31 + seed);
  return out;
}

void put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
bool exists(const std::string& path) { return std::filesystem::exists(std::filesystem::symlink_status(path)); }

std::shared_ptr<PosixStateFiles> open(const std::string& folder) {
  auto files = PosixStateFiles::open(folder);
  EXPECT_TRUE(files) << files.error().what;
  return files ? files.value() : nullptr;
}

TEST(PosixFiles, AFileIsReadAsItWasWritten) {
  Folder folder;
  auto files = open(folder.path());
  const SeqId a{1, 65536}, b{1, 131073};
  StateHeader h;
  h.seq = a;
  ASSERT_TRUE(files->create(a));
  ASSERT_TRUE(files->append(a, bytes_of(1000, 1)));
  ASSERT_TRUE(files->create(b)) << "two at a time";
  ASSERT_TRUE(files->append(a, bytes_of(500, 2)));
  ASSERT_TRUE(files->append(b, bytes_of(10, 3)));
  EXPECT_FALSE(files->size(a)) << "it is not whole";
  ASSERT_TRUE(files->commit(a, encode(h)));
  EXPECT_TRUE(exists(folder.file("1-65536.kv")));
  EXPECT_FALSE(exists(folder.file("1-65536.kv.part")));
  EXPECT_EQ(files->size(a).value(), kStateHeaderBytes + 1500);
  std::vector<std::byte> back(500);
  ASSERT_TRUE(files->read(a, kStateHeaderBytes + 1000, back));
  EXPECT_EQ(back, bytes_of(500, 2));
  StateHeaderBytes header;
  ASSERT_TRUE(files->read(a, 0, header));
  EXPECT_EQ(header, encode(h));
  const auto past = files->read(a, kStateHeaderBytes + 1001, back);
  ASSERT_FALSE(past);
  EXPECT_EQ(past.error().code, ErrorCode::bad_file);
  files->remove(a);
  files->remove(b);
  files->remove(b);
  EXPECT_EQ(folder.count(), 0u);
  EXPECT_FALSE(files->size(a));
}

TEST(PosixFiles, LeftoversAreRemovedAtTheStartAndNothingElse) {
  Folder folder;
  put(folder.file("1-5.kv"), "TRPSTATE and so on");
  put(folder.file("1-6.kv.part"), "TRPSTATE");
  put(folder.file("1-7.kv"), "somebody's notes");
  put(folder.file("1-8.kv"), "TRP");
  put(folder.file("notes.txt"), "TRPSTATE");
  put(folder.file("target"), "TRPSTATE");
  std::filesystem::create_symlink(folder.file("target"), folder.file("1-9.kv"));
  std::filesystem::create_directory(folder.file("1-10.kv"));
  auto files = open(folder.path());
  EXPECT_EQ(files->leftovers(), 2u);
  EXPECT_FALSE(exists(folder.file("1-5.kv")));
  EXPECT_FALSE(exists(folder.file("1-6.kv.part")));
  for (const char* name : {"1-7.kv", "1-8.kv", "notes.txt", "target", "1-9.kv", "1-10.kv"}) EXPECT_TRUE(exists(folder.file(name))) << name;
}

TEST(PosixFiles, WhatACrashLeavesIsKnownAsOurs) {
  Folder folder, copy;
  auto files = open(folder.path());
  ASSERT_TRUE(files->create({1, 5}));
  ASSERT_TRUE(files->append({1, 5}, bytes_of(100, 1)));
  std::filesystem::copy(folder.file("1-5.kv.part"), copy.file("1-5.kv.part"));
  EXPECT_EQ(open(copy.path())->leftovers(), 1u);
}

TEST(PosixFiles, AFolderHasOneUser) {
  Folder folder;
  auto files = open(folder.path());
  const auto second = PosixStateFiles::open(folder.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::overloaded);
  files.reset();
  EXPECT_TRUE(open(folder.path()));
}

TEST(PosixFiles, TheFolderIsMadeIfItsParentIsThere) {
  Folder folder;
  EXPECT_TRUE(open(folder.file("new")));
  const auto none = PosixStateFiles::open(folder.file("no/such"));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::io_failed);
  EXPECT_NE(none.error().what.find("no/such"), std::string::npos);
  put(folder.file("plain"), "x");
  EXPECT_FALSE(PosixStateFiles::open(folder.file("plain")));
}

TEST(PosixFiles, AFolderThatVanishesIsAnErrorAndNoMore) {
  Folder folder;
  auto files = open(folder.file("new"));
  std::filesystem::remove_all(folder.file("new"));
  const auto made = files->create({1, 5});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::io_failed);
  files->remove({1, 5});
}

// The name of a file that is to be written is taken by a link to another: that one is not touched.
TEST(PosixFiles, LinksAreNotFollowed) {
  Folder folder;
  put(folder.file("target"), "precious");
  auto files = open(folder.path());
  std::filesystem::create_symlink(folder.file("target"), folder.file("1-5.kv.part"));
  ASSERT_TRUE(files->create({1, 5}));
  ASSERT_TRUE(files->append({1, 5}, bytes_of(100, 1)));
  EXPECT_EQ(std::filesystem::file_size(folder.file("target")), 8u);
}

}  // namespace
}  // namespace troupe::actors
