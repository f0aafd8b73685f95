// libFuzzer: a recording that anybody made is read up to where it is wrong. The first byte says what the others are: a
// file, a header, or the records of a block.
#include <cstdlib>

#include "actors/trace/reader.h"
#include "tests/tools/trace/fuzz_file.h"

namespace {

using namespace troupe::actors::trace;
using troupe::tools::fuzz_block;
using troupe::tools::fuzz_file_start;
using troupe::tools::fuzz_header;

Reader begun() {
  Reader reader;
  const auto start = fuzz_file_start();
  if (!reader.feed(start.data(), start.size()) || !reader.has_header()) std::abort();
  return reader;
}

void read(Reader reader, const std::uint8_t* data, std::size_t size) {
  const auto fed = reader.feed(data, size);
  if (!fed && fed.error().what.empty()) std::abort();
  for (const Event& e : reader.take()) {
    if (e.head.kind == RecordKind::sent && e.message.index() != 0 && label(e.message).empty()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static const Reader start = begun();
  if (data[0] == 0xFF) {
    read({}, data + 1, size - 1);
  } else if (data[0] == 0xFE) {
    const auto header = fuzz_header(data + 1, size - 1);
    read({}, header.data(), header.size());
  } else {
    const auto block = fuzz_block(data[0], data + 1, size - 1);
    read(start, block.data(), block.size());
  }
  return 0;
}
