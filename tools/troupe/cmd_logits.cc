// troupe logits: the logits of every position of a list of ids, as a safetensors file.
#include <fmt/format.h>
#include <unistd.h>
#include <boost/program_options/value_semantic.hpp>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "tools/troupe/commands.h"
#include "tools/troupe/direct.h"
#include "tools/troupe/engine.h"
#include "tools/troupe/output.h"

namespace troupe::tools {
namespace {

namespace po = boost::program_options;

// A safetensors file: the header's length (8 bytes, little-endian), the header (JSON, padded to 8), the data.
// Format: huggingface.co/docs/safetensors.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> create(const std::string& path, std::size_t positions, std::size_t vocab) {
    SafetensorsFile file(path);
    std::string header = fmt::format(R"({{"logits":{{"dtype":"F32","shape":[{},{}],"data_offsets":[0,{}]}}}})", positions, vocab,
                                     positions * vocab * sizeof(float));
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const std::uint64_t size = header.size();
    file.out_.write(reinterpret_cast<const char*>(&size), sizeof size);
    file.out_.write(header.data(), static_cast<std::streamsize>(header.size()));
    TROUPE_TRY(file.check());
    return file;
  }
  Result<void> append(std::span<const float> row) {
    out_.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size_bytes()));
    return check();
  }
  Result<void> close() {
    out_.close();
    return check();
  }

 private:
  explicit SafetensorsFile(const std::string& path) : path_(path), out_(path, std::ios::binary | std::ios::trunc) {}
  Result<void> check() const {
    if (!out_) return Error{ErrorCode::io_failed, fmt::format("{}: cannot write: {}", path_, std::strerror(errno))};
    return success();
  }
  std::string path_;
  std::ofstream out_;
};

Result<void> write_logits(device::LoadedModel& loaded, const std::vector<Token>& ids, const std::string& path) {
  const std::size_t vocab = loaded.model->info().vocab_size;
  TROUPE_TRY(auto sequence, DirectSequence::create(*loaded.driver, *loaded.model));
  TROUPE_TRY(auto file, SafetensorsFile::create(path, ids.size(), vocab));
  const bool progress = ::isatty(STDERR_FILENO) != 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    auto logits = sequence->step(ids[i]);
    if (!logits) return Error{logits.error().code, fmt::format("position {}: {}", i, logits.error().what)};
    TROUPE_TRY(file.append(logits.value()));
    if (progress) std::fputs(fmt::format("\r{} of {} positions{}", i + 1, ids.size(), i + 1 == ids.size() ? "\n" : "").c_str(), stderr);
  }
  return file.close();
}

}  // namespace

int run_logits(const Command& self, const std::vector<std::string>& args) {
  po::options_description own("Options of logits");
  auto add = own.add_options();
  add("ids", po::value<std::string>()->required()->value_name("1,2,3"), "the ids, separated by commas");
  add("out", po::value<std::string>()->required()->value_name("FILE"),
      "the safetensors file: tensor \"logits\", F32 [positions, vocabulary]");
  auto parsed = parse_command_line(self, args, own, 0);
  if (!parsed) return fail(self, parsed.error(), kExitUsage);
  if (parsed.value().help) return kExitOk;
  auto ids = parse_id_list(parsed.value().values["ids"].as<std::string>());
  if (!ids) return fail(self, ids.error(), kExitUsage);
  CommonOptions common = parsed.value().common;
  common.max_batch = 1;
  auto loaded = open_model(common, 1);
  if (!loaded) return fail(self, loaded.error(), kExitStart);
  const auto done = write_logits(loaded.value(), ids.value(), parsed.value().values["out"].as<std::string>());
  if (!done) return fail(self, done.error(), done.error().code == ErrorCode::io_failed ? kExitClosed : kExitFailed);
  return kExitOk;
}

}  // namespace troupe::tools
