// Which replica a request goes to. Work is counted in tokens: of every request that is placed on a replica, its prompt and all
// the output that it may still get. The one whose work ends soonest gets the request, unless another one has its prompt's
// first blocks in its cache and is not further behind than `affinity_bound` tokens: so affinity never piles up more than
// that, and a cold replica is never starved of more. Those whose KV pool has no room beside what they have to do come last: there
// the request would wait for blocks, or take them from others.
//
// What a replica has cached is not asked but remembered: which prompts went there last, by a hash over their leading blocks.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "messages/request.h"

namespace troupe::actors {

enum class PlacementPolicy : std::uint8_t {
  least_work,   // as above
  round_robin,  // one after the other
  pinned,       // client id modulo the number of replicas; the next one that takes requests, if it takes none
};

struct PlacementConfig {
  PlacementPolicy policy = PlacementPolicy::least_work;
  std::uint32_t affinity_bound = 1024;   // tokens
  std::uint32_t affinity_blocks = 4096;  // remembered, per replica; the ones that were used longest ago go first
};

class Placement {
 public:
  struct Candidate {
    std::uint32_t index = 0;
    std::uint64_t outstanding = 0;
    std::uint32_t weight = 1;  // how fast it is beside the others
    std::uint64_t kv = 0;      // tokens that its KV pool holds; 0: not known yet
  };
  // A chain of hashes, one for each full block of the prompt: equal hashes stand for equal prefixes.
  using Prefix = std::vector<std::uint64_t>;

  Placement(const PlacementConfig& config, std::uint32_t n_replicas, std::uint32_t block_size)
      : config_(config), block_size_(block_size == 0 ? 1 : block_size), caches_(n_replicas) {}

  Prefix prefix_of(const Request& request) const;
  // Index of one of `candidates`, of which there is at least one, in ascending order.
  std::uint32_t choose(std::span<const Candidate> candidates, std::uint64_t client, std::uint64_t cost, const Prefix& prefix);
  void placed(std::uint32_t index, const Prefix& prefix);
  void forget(std::uint32_t index);                 // it starts again with nothing in its cache
  std::uint64_t affine() const { return affine_; }  // choices that were made for a cached prefix

 private:
  static constexpr std::size_t kMostBlocks = 64;  // of a prompt that are looked at
  struct Cache {
    std::list<std::uint64_t> order;                                            // newest first
    std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> at;  // lookup only
  };
  std::size_t matched(std::uint32_t index, const Prefix& prefix) const;

  const PlacementConfig config_;
  const std::uint32_t block_size_;
  std::vector<Cache> caches_;
  std::uint64_t turn_ = 0;
  std::uint64_t affine_ = 0;
};

}  // namespace troupe::actors
