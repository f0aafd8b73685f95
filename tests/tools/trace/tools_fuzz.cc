// libFuzzer: nothing that looks at recordings falls over one that anybody made. The bytes are the records of a block.
#include <cstdlib>

#include "actors/trace/check.h"
#include "actors/trace/diff.h"
#include "actors/trace/reader.h"
#include "tests/tools/trace/fuzz_file.h"
#include "tools/trace/html.h"
#include "tools/trace/lines.h"
#include "tools/trace/perfetto.h"
#include "tools/trace/story.h"

namespace {

using namespace troupe::actors::trace;

void look(const Recording& r) {
  (void)check(r);
  (void)diff(r, r);
  (void)troupe::tools::stats(r);
  (void)troupe::tools::perfetto(r);
  (void)troupe::tools::html(r);
  troupe::tools::LineFilter filter;
  filter.client = 1;
  troupe::tools::LinePicker picker(filter);
  for (const Event& e : r.events) {
    (void)picker.pick(e, 0);
    (void)troupe::tools::line(e, 0);
    (void)troupe::tools::dump(e.message);
  }
  if (!r.events.empty()) (void)troupe::tools::show(r, r.events.back().head.seq);
  (void)troupe::tools::story(r, "1");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static const std::vector<std::uint8_t> start = troupe::tools::fuzz_file_start();
  std::vector<std::uint8_t> file = start;
  const auto block = troupe::tools::fuzz_block(data[0], data + 1, size - 1);
  file.insert(file.end(), block.begin(), block.end());
  const auto made = parse_recording(file.data(), file.size());
  if (!made) std::abort();  // its header is right
  look(made.value());
  return 0;
}
