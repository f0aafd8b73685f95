// libFuzzer: a recording that anybody made is read up to where it is wrong, and nothing that looks at recordings falls
// over it. The bytes are taken as a file, and as the records of a block whose checksum is right, since a fuzzer does not
// find checksums.
#include <cstdlib>

#include "actors/trace/check.h"
#include "actors/trace/diff.h"
#include "actors/trace/reader.h"
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

std::vector<std::uint8_t> file_start() {
  CoreConfigs c;
  c.device.ring_slots = 3;
  c.model.context_length = 64;
  c.model.kv_blocks = 16;
  c.model.n_slots = 4;
  c.model.eos_ids = {2};
  return encode_file_start(make_header(c, false));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto raw = parse_recording(data, size);
  if (raw) look(raw.value());
  if (!raw && raw.error().what.empty()) std::abort();
  if (size < 4) return 0;
  static const std::vector<std::uint8_t> start = file_start();
  std::vector<std::uint8_t> file = start;
  std::vector<std::uint8_t> block(kBlockPrefix);
  put_le(block.data(), kBlockMagic);
  put_le(block.data() + 8, static_cast<std::uint32_t>(size - 1));
  put_le(block.data() + 12, std::uint32_t{data[0]});
  block.insert(block.end(), data + 1, data + size);
  put_le(block.data() + 4, crc32c(block.data() + 8, block.size() - 8));
  file.insert(file.end(), block.begin(), block.end());
  const auto made = parse_recording(file.data(), file.size());
  if (!made) std::abort();  // its header is right
  look(made.value());
  return 0;
}
