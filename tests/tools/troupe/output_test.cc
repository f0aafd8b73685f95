#include "tools/troupe/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace troupe::tools {
namespace {

std::string write_file(const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "/lines";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(Output, AClosedPipeIsAnErrorThatSaysSo) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const auto written = write_all(ends[1], "x");
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, ErrorCode::io_failed);
  EXPECT_NE(written.error().what.find("the reader closed it"), std::string::npos) << written.error().what;
  ::close(ends[1]);
}

TEST(Output, WritesMoreThanAPipeHolds) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string sent(1 << 20, 'x');
  std::thread writer([&] {
    EXPECT_TRUE(write_all(ends[1], sent).has_value());
    ::close(ends[1]);
  });
  EXPECT_EQ(read_all(ends[0], sent.size()).value(), sent);
  writer.join();
  ::close(ends[0]);
}

TEST(Output, ReadAllStopsAtItsLimit) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_TRUE(write_all(ends[1], "12345").has_value());
  ::close(ends[1]);
  EXPECT_EQ(read_all(ends[0], 4).error().code, ErrorCode::bad_request);
  ::close(ends[0]);
}

TEST(LineReader, NumbersLinesAndTakesALastOneWithoutEnd) {
  auto reader = LineReader::open(write_file("a\n\nccc"));
  ASSERT_TRUE(reader.has_value());
  std::string line;
  EXPECT_TRUE(reader.value().next(line).value());
  EXPECT_EQ(line, "a");
  EXPECT_TRUE(reader.value().next(line).value());
  EXPECT_EQ(line, "");
  EXPECT_TRUE(reader.value().next(line).value());
  EXPECT_EQ(line, "ccc");
  EXPECT_EQ(reader.value().number(), 3u);
  EXPECT_FALSE(reader.value().next(line).value());
}

TEST(LineReader, ReadsLinesLongerThanItsReads) {
  const std::string first(300'000, 'a'), second(100'000, 'b');
  auto reader = LineReader::open(write_file(first + "\n" + second + "\n"));
  ASSERT_TRUE(reader.has_value());
  std::string line;
  EXPECT_TRUE(reader.value().next(line).value());
  EXPECT_EQ(line, first);
  EXPECT_TRUE(reader.value().next(line).value());
  EXPECT_EQ(line, second);
  EXPECT_FALSE(reader.value().next(line).value());
}

TEST(LineReader, NamesAFileThatIsNotThere) {
  const auto reader = LineReader::open("/nonexistent/x.jsonl");
  ASSERT_FALSE(reader.has_value());
  EXPECT_NE(reader.error().what.find("/nonexistent/x.jsonl"), std::string::npos);
}

TEST(LineReader, InterruptEndsAReadThatWaits) {
  const std::string path = ::testing::TempDir() + "/fifo";
  ::unlink(path.c_str());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int keep_open = ::open(path.c_str(), O_RDWR);
  auto reader = LineReader::open(path);
  ASSERT_TRUE(reader.has_value());
  std::thread waiter([&] {
    std::string line;
    EXPECT_FALSE(reader.value().next(line).value());
  });
  reader.value().interrupt();
  waiter.join();
  ::close(keep_open);
}

}  // namespace
}  // namespace troupe::tools
