// Cases of reference data by teacher forcing, several side by side in the same steps, under adapters or none: for tests of
// whole models, on any device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/golden/golden.h"

namespace troupe::golden {

struct Tolerance {
  double deviation;
  double margin;  // greedy ids must be equal where the reference's margin is at least this much of logit_std
};

// One case of one adapter: its next row, and the logits that its rows gave.
struct Lane {
  std::uint32_t adapter = 0;  // slot
  const Case* c = nullptr;
  std::size_t most_greedy = SIZE_MAX;  // how many of the greedy ids are looked at
  std::size_t chunk = 0, step = 0;     // how many it has had of each
  std::uint32_t position = 0;
  std::vector<std::vector<float>> logits{};  // at logit_positions (or the last position), then of each greedy id but the last

  std::size_t greedy() const { return std::min(most_greedy, c->greedy.size()); }

  // Row has slot, position, ids and adapter.
  template <class Row>
  std::optional<Row> next(std::uint32_t slot) {
    Row row;
    row.slot = slot, row.position = position, row.adapter = adapter;
    const std::size_t chunks = std::max<std::size_t>(c->logit_positions.size(), 1);
    if (chunk < chunks) {  // chunks end where logits are known
      const std::size_t end = c->logit_positions.empty() ? c->prompt.size() : c->logit_positions[chunk] + 1;
      row.ids.assign(c->prompt.begin() + position, c->prompt.begin() + static_cast<std::ptrdiff_t>(end));
      ++chunk;
    } else if (step + 1 < greedy()) {
      row.ids = {c->greedy[step++]};
    } else {
      return std::nullopt;
    }
    position += static_cast<std::uint32_t>(row.ids.size());
    return row;
  }
};

// All lanes in the same steps, lane i in slot i. `step` answers the logits of each row.
template <class Row, class Step, class Release>
void run_lanes(std::vector<Lane>& lanes, Step&& step, Release&& release) {
  for (;;) {
    std::vector<Row> rows;
    std::vector<Lane*> of;
    for (std::uint32_t i = 0; i < lanes.size(); ++i) {
      if (auto row = lanes[i].next<Row>(i)) rows.push_back(std::move(*row)), of.push_back(&lanes[i]);
    }
    if (rows.empty()) break;
    std::vector<std::vector<float>> logits = step(rows);
    for (std::size_t i = 0; i < of.size(); ++i) of[i]->logits.push_back(std::move(logits[i]));
  }
  for (std::uint32_t i = 0; i < lanes.size(); ++i) release(i);
}

// How many greedy ids had margin enough to be compared.
inline std::size_t expect_greedy(const Lane& lane, const Tolerance& tolerance, const std::string& what) {
  const std::size_t first = lane.logits.size() - lane.greedy();
  std::size_t compared = 0;
  for (std::size_t i = 0; i < lane.greedy(); ++i) {
    if (lane.c->margin[i] < tolerance.margin * lane.c->logit_std) continue;
    ++compared;
    const auto& l = lane.logits[first + i];
    EXPECT_EQ(std::max_element(l.begin(), l.end()) - l.begin(), lane.c->greedy[i]) << what << " step " << i;
  }
  EXPECT_GT(compared, 0u) << what;
  return compared;
}

// Of a lane's first logits from the 512 best ids and their logits (`best`: [2, 512]): the spread is that of all logits.
inline double deviation_of_best(const Lane& lane, const Tensor& best) {
  double mean = 0.0, error = 0.0;
  const auto n = static_cast<double>(best.shape[1]);
  const auto difference = [&](std::size_t i) { return lane.logits[0][static_cast<std::size_t>(best.values[i])] - best.row(1)[i]; };
  for (std::size_t i = 0; i < best.shape[1]; ++i) mean += difference(i) / n;
  for (std::size_t i = 0; i < best.shape[1]; ++i) error += std::pow(difference(i) - mean, 2.0);
  return std::sqrt(error / n) / lane.c->logit_std;
}

}  // namespace troupe::golden
