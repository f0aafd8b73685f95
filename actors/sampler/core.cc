#include "actors/sampler/core.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "actors/sampler/history.h"
#include "kernels/philox.h"
#include "kernels/sampling.h"
#include "kernels/sampling_math.h"
#include "messages/sample.h"

namespace troupe::actors {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr std::size_t kMaxSpare = 64;

bool inside(std::uint32_t begin, std::uint32_t size, std::size_t whole) { return begin <= whole && size <= whole - begin; }

}  // namespace

struct SamplerCore::State {
  explicit State(std::uint32_t vocab) : vocab_size(vocab), scratch(vocab), work(vocab) {}

  // The request's history with the row's new tokens in it; null if the row contradicts what is kept.
  History* update(const SampleRow& row, std::span<const Token> new_tokens) {
    auto it = histories.find(row.request);
    if (row.fresh) {
      if (it == histories.end()) it = insert(row.request);
      it->second.start(row.params->sampling.penalizes() ? *row.params : Request{}, vocab_size);
    } else if (it == histories.end()) {
      return nullptr;
    }
    if (!row.params->sampling.penalizes()) return &it->second;
    it->second.add(new_tokens);
    return it->second.outputs() == row.output_index ? &it->second : nullptr;
  }

  std::map<RequestId, History>::iterator insert(RequestId request) {
    if (spare.empty()) return histories.try_emplace(request).first;
    auto node = std::move(spare.back());
    spare.pop_back();
    node.key() = request;
    return histories.insert(std::move(node)).position;
  }

  void close(RequestId request) {
    auto node = histories.extract(request);
    if (node && spare.size() < kMaxSpare) spare.push_back(std::move(node));
  }

  SampledRow sample(const SampleBatch& batch, const SampleRow& row, std::vector<TokenLogprob>& best) {
    SampledRow out;
    out.request = row.request;
    out.best_begin = static_cast<std::uint32_t>(best.size());
    out.status = CellStatus::poisoned;
    const LogitsView& view = batch.logits;
    if (!row.params || view.data == nullptr || view.vocab != vocab_size || row.logits_row >= view.n_rows) return out;
    if (!inside(row.new_begin, row.new_size, batch.tokens.size()) || !inside(row.bar_begin, row.bar_size, batch.tokens.size())) return out;
    const std::span<const Token> tokens(batch.tokens);
    const History* history = update(row, tokens.subspan(row.new_begin, row.new_size));
    if (history == nullptr) return out;

    const SamplingParams& p = row.params->sampling;
    const std::span<const float> raw(view.data + std::size_t{row.logits_row} * vocab_size, vocab_size);
    std::copy(raw.begin(), raw.end(), work.begin());
    if (p.penalizes()) history->apply(p, work);
    for (const TokenBias& b : p.logit_bias) {
      if (b.id < vocab_size) work[b.id] += b.bias;
    }
    for (Token id : tokens.subspan(row.bar_begin, row.bar_size)) {
      if (id < vocab_size) work[id] = kMinusInfinity;
    }

    std::optional<Token> chosen;
    if (p.temperature > 0) {
      const kernels::SamplingShape shape{.temperature = p.temperature, .top_k = p.top_k, .top_p = p.top_p, .min_p = p.min_p};
      chosen = kernels::sample_token(work, shape, kernels::philox_draw(row.seed, row.output_index, 0), scratch);
    } else {
      chosen = kernels::best_token(work);
    }
    if (!chosen) {
      out.status = CellStatus::no_token;
      return out;
    }
    out.id = *chosen;
    out.status = CellStatus::ok;
    if (p.logprobs) {
      const kernels::LogSoftmax log_softmax(raw);
      out.logprob = log_softmax.at(raw[out.id]);
      for (std::uint64_t key : kernels::best_tokens(raw, *p.logprobs, scratch)) {
        const Token id = kernels::candidate_id(key);
        best.push_back({id, log_softmax.at(raw[id])});
      }
      out.best_size = static_cast<std::uint32_t>(best.size()) - out.best_begin;
    }
    return out;
  }

  std::uint32_t vocab_size;
  kernels::SamplingScratch scratch;
  std::vector<float> work;                 // a row's logits after penalties, bias and bars
  std::map<RequestId, History> histories;  // one per request that was asked for and has not closed
  std::vector<std::map<RequestId, History>::node_type> spare;
  Pool<SampledBatch> answers;
};

SamplerCore::SamplerCore(std::uint32_t vocab_size) : s_(std::make_unique<State>(vocab_size)) { s_->spare.reserve(kMaxSpare); }
SamplerCore::~SamplerCore() = default;

void SamplerCore::on(const Sample& m, TimeNs, SamplerOutbox& out) {
  const SampleBatch& batch = *m.batch;
  Draft<SampledBatch> answer = s_->answers.draft();
  answer->ticket = batch.ticket;
  for (const SampleRow& row : batch.rows) answer->rows.push_back(s_->sample(batch, row, answer->best));
  for (RequestId request : batch.closed) s_->close(request);
  out.push(Sampled{{}, std::move(answer).freeze()});
}

std::size_t SamplerCore::requests() const { return s_->histories.size(); }

}  // namespace troupe::actors
