// A rig (llama_rig.h) with the CUDA model on the CUDA driver, over the fake runtime and the SIMT emulation of its kernels.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/driver.h"
#include "device/models/llama_cuda.h"
#include "tests/device/models/llama_rig.h"
#include "tests/fake_cuda/fixture.h"

namespace troupe::device {

inline std::unique_ptr<Driver> cuda_driver() {
  auto made = make_cuda_driver({});
  if (!made) throw std::runtime_error(made.error().what);
  return std::move(made.value());
}

class CudaRig : public LlamaRig {
 public:
  explicit CudaRig(const std::string& path, const LlamaOptions& options, std::uint64_t seed = 1)
      : LlamaRig(path, options, cuda_driver(), &make_model<LlamaCudaModel>, seed) {}
  GraphFigures figures() { return static_cast<LlamaCudaModel&>(model()).graph_figures(); }
};

inline std::vector<Token> piece(const std::vector<Token>& ids, std::size_t begin, std::size_t end) {
  return {ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.begin() + static_cast<std::ptrdiff_t>(end)};
}

// Five prompts in slots 0 to 4 have the same bits in both: one after the other where no graph is kept (`plain`), and all at once, the
// one of slot 2 in chunks that end where `chunks` says, fed on the device, two steps of each number of rows: 5, 4, 3, 2, 1 of 8, 4, 4,
// 2, 1. The first of a size is launched and captured. Afterwards position ids[s].size() + 10 - 2 s is slot s' next.
inline void expect_replays_have_the_bits_of_launches(CudaRig& plain, CudaRig& graphs, const std::vector<std::vector<Token>>& ids,
                                                     const std::vector<std::size_t>& chunks) {
  ASSERT_EQ(ids.size(), 5u);
  constexpr std::uint32_t kSteps = 10;
  const auto end_of = [&](std::uint32_t s) { return static_cast<std::uint32_t>(ids[s].size()); };
  std::vector<std::vector<std::vector<float>>> want(ids.size());
  for (std::uint32_t s = 0; s < ids.size(); ++s) {
    RigResult r = plain.run({{.slot = s, .position = 0, .ids = ids[s]}});
    want[s].push_back(r.logits[0]);
    for (std::uint32_t i = 0; i + 2 * s < kSteps; ++i) {
      r = plain.run({{.slot = s, .position = end_of(s) + i, .ids = {r.rows[0].id}}});
      want[s].push_back(r.logits[0]);
    }
  }
  EXPECT_EQ(plain.figures().replayed, 0u);
  std::size_t begin = 0;
  for (const std::size_t end : chunks) {
    (void)graphs.run({{.slot = 2, .position = static_cast<std::uint32_t>(begin), .ids = piece(ids[2], begin, end), .wants = false}});
    begin = end;
  }
  std::vector<RigRow> rows;
  for (std::uint32_t s = 0; s < ids.size(); ++s) rows.push_back({.slot = s, .position = 0, .ids = ids[s]});
  rows[2] = {.slot = 2, .position = static_cast<std::uint32_t>(begin), .ids = piece(ids[2], begin, ids[2].size())};
  for (std::uint32_t i = 0;; ++i) {
    const RigResult r = graphs.run(rows);
    for (std::uint32_t s = 0; s < rows.size(); ++s) EXPECT_TRUE(same_bits(r.logits[s], want[s][i])) << s << " " << i;
    if (i == kSteps) break;
    rows.clear();
    for (std::uint32_t s = 0; i + 2 * s < kSteps; ++s)
      rows.push_back({.slot = s, .position = end_of(s) + i, .feed_ring = r.ring, .feed_row = s, .feed_tag = r.tag});
  }
  EXPECT_EQ(graphs.figures().captured, 4u) << "8, 4, 2 and 1";
  EXPECT_EQ(graphs.figures().replayed, kSteps - 4);
  EXPECT_EQ(graphs.figures().evicted, 0u);
}

}  // namespace troupe::device
