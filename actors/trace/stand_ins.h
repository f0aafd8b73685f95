// What stands in, in a replay, for what a recording does not hold: the files of the spill core and the KV that it writes
// to them, and the sampler's logits. Chosen such that the core's answer has to be the recorded one if its books are right; what the
// core made of the bytes themselves is taken from the recording.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "actors/spill/state_files.h"
#include "messages/protocol.h"

namespace troupe::actors::trace {

// Files that hold nothing but zeros. What the recording says failed in the world outside (io_failed, bad_file) fails here.
class StandInFiles final : public StateFiles {
 public:
  // Of the message that comes next: what its recorded answer says.
  void expect(const Error& answer);

  Result<void> create(SeqId seq) override;
  Result<void> append(SeqId seq, std::span<const std::byte> bytes) override;
  Result<void> commit(SeqId seq, const StateHeaderBytes& header) override;
  Result<std::uint64_t> size(SeqId seq) override;
  Result<void> read(SeqId seq, std::uint64_t offset, std::span<std::byte> to) override;
  void remove(SeqId seq) override;

 private:
  struct File {
    StateHeaderBytes header{};
    std::uint64_t bytes = kStateHeaderBytes;
  };
  Result<void> outside();
  Result<File*> find(SeqId seq);
  std::map<SeqId, File> files_;
  Error failure_;
};

// The message with zeros of this process in the place of the memory that it names. False: it names more than a place has.
class StandInMemory {
 public:
  bool lend(StatePiece& piece);

 private:
  std::vector<std::byte> zeros_;
};

// Logits in which the recorded choice of each row stands out, or of which there is none where the recording has none.
class StandInLogits {
 public:
  // `answer` may be null: it was cut off. False: the batch names more rows than a step has.
  bool lend(SampleBatch& batch, const SampledBatch* answer, std::uint32_t vocab_size);

 private:
  std::vector<float> rows_;
};

// Whether the answers are the same but for log-probabilities and what is listed beside the choice.
bool same_choices(const SampledBatch& a, const SampledBatch& b);

}  // namespace troupe::actors::trace
