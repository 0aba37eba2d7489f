#include "worker/train/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "worker/nn/model.h"
#include "worker/train/micro_batches.h"

namespace tilewright::train {
namespace {

// Tokens of the `count` longest examples.
std::int64_t longest_tokens(const tasks::Dataset& data, std::int64_t count,
                            const nn::Padding& padding) {
  std::vector<std::int64_t> lengths(data.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = std::max(static_cast<std::int64_t>(data.length(i)), padding.length);
  }
  std::sort(lengths.rbegin(), lengths.rend());
  lengths.resize(std::min(lengths.size(), static_cast<std::size_t>(count)));
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

void plan_training(const Job& job, MemoryPlan& plan) {
  const Settings& s = job.settings;
  plan.examples = max_micro_batch_examples(static_cast<int>(s.virtual_shards), s.global_batch,
                                           s.per_device_train_batch_size);
  plan.tokens = longest_tokens(job.train_data, plan.examples, job.padding);
  plan.max_seqlen = longest_tokens(job.train_data, 1, job.padding);
  // At most one row of the word embeddings per token, and one for [PAD].
  const std::int64_t rows = std::min(job.model.encoder.vocab_size,
                                     longest_tokens(job.train_data, s.global_batch, {}) + 1);
  // Two more elements: the loss and the stop request.
  plan.gradient_elements = nn::ParameterLayout(job.model.encoder).word_embeddings +
                           rows * job.model.encoder.hidden_size + 2;
  for (std::int64_t world = 1; world <= s.max_workers; ++world) {
    for (int rank = 0; rank < world; ++rank) {
      plan.gradient_buffers =
          std::max(plan.gradient_buffers,
                   plan_step(s, rank, static_cast<int>(world), s.global_batch).gradients());
    }
  }
}

void plan_evaluation(const Job& job, MemoryPlan& plan) {
  const std::int64_t batch = job.settings.per_device_eval_batch_size;
  std::int64_t tokens = 0;
  for (const auto* sets : {&job.evaluation_sets, &job.prediction_sets}) {
    for (const EvaluationSet& set : *sets) {
      tokens = std::max(tokens, longest_tokens(set.data, batch, job.padding));
      plan.max_seqlen = std::max(plan.max_seqlen, longest_tokens(set.data, 1, job.padding));
    }
  }
  plan.evaluation_is_largest = tokens > plan.tokens;
  plan.examples = std::max(plan.examples, batch);
  plan.tokens = std::max(plan.tokens, tokens);
}

}  // namespace

MemoryPlan plan_memory(const Job& job) {
  MemoryPlan plan;
  if (job.settings.do_train) plan_training(job, plan);
  if (job.settings.do_eval || job.settings.do_predict) plan_evaluation(job, plan);
  return plan;
}

template <typename Activation>
MemoryEstimate estimate_memory(const Job& job, const nn::Context<Activation>& context,
                               const MemoryPlan& plan) {
  using Model = nn::Model<Activation>;
  const auto parameters = static_cast<std::uint64_t>(nn::ParameterLayout(job.model.encoder).count);
  MemoryEstimate estimate;
  estimate.weights = 3 * parameters * sizeof(float);
  estimate.packed = Model::packed_bytes(job.model.encoder, context);
  estimate.activations =
      Model::activation_bytes(job.model.encoder, context, plan.tokens, plan.examples,
                              plan.max_seqlen, job.settings.virtual_shards);
  estimate.gradients = static_cast<std::uint64_t>(plan.gradient_elements) *
                       static_cast<std::uint64_t>(plan.gradient_buffers) * sizeof(float);
  estimate.tokens = plan.tokens;
  estimate.batch_flag =
      plan.evaluation_is_largest ? "per_device_eval_batch_size" : "per_device_train_batch_size";
  return estimate;
}

template MemoryEstimate estimate_memory(const Job&, const nn::Context<float>&, const MemoryPlan&);
template MemoryEstimate estimate_memory(const Job&, const nn::Context<runtime::bf16>&,
                                        const MemoryPlan&);

}  // namespace tilewright::train
