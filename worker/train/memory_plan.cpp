#include "worker/train/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "common/rendezvous/types.h"
#include "worker/nn/model.h"
#include "worker/train/batching.h"
#include "worker/train/gradient_tail.h"
#include "worker/train/micro_batches.h"

namespace tilewright::train {
namespace {

// Tokens of the `count` longest examples.
std::int64_t longest_tokens(const tasks::Dataset& data, std::int64_t count,
                            const nn::Padding& padding) {
  std::vector<std::int64_t> lengths(data.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = rows_of(data, i, padding);
  std::sort(lengths.rbegin(), lengths.rend());
  lengths.resize(std::min(lengths.size(), static_cast<std::size_t>(count)));
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

void plan_training(const Job& job, MemoryPlan& plan) {
  const Settings& s = job.settings;
  nn::BatchLimits& limits = plan.training;
  limits.examples = max_micro_batch_examples(static_cast<int>(s.virtual_shards), s.global_batch,
                                             s.per_device_train_batch_size);
  limits.max_seqlen = longest_tokens(job.train_data, 1, job.padding);
  limits.tokens = job.padding.in_loss
                      ? limits.examples * limits.max_seqlen
                      : longest_tokens(job.train_data, limits.examples, job.padding);
  // At most one row of the word embeddings per token, and one for [PAD].
  const std::int64_t rows = std::min(job.model.encoder.vocab_size,
                                     longest_tokens(job.train_data, s.global_batch, {}) + 1);
  // With the loss and what follows it.
  plan.gradient_elements =
      nn::ParameterLayout(job.model.encoder).word_embeddings +
      rows * job.model.encoder.hidden_size + 1 +
      GradientTail::size(std::max<std::int64_t>(s.max_workers, rendezvous::kMaxWorld));
  const int shards = static_cast<int>(s.virtual_shards);
  // In a larger world no rank has more than one shard.
  for (std::int64_t world = 1; world <= std::min<std::int64_t>(s.max_workers, shards); ++world) {
    const auto split = collectives::even_split(static_cast<int>(world), shards);
    for (int rank = 0; rank < world; ++rank) {
      plan.gradient_buffers =
          std::max(plan.gradient_buffers, plan_step(s, split, rank, s.global_batch).gradients());
    }
  }
}

// Each rank begins with another example, so these are bounds for all of their batches.
void plan_evaluation(const Job& job, MemoryPlan& plan) {
  nn::BatchLimits& limits = plan.evaluation;
  const std::int64_t batch = job.settings.per_device_eval_batch_size;
  for (const auto* sets : {&job.evaluation_sets, &job.prediction_sets}) {
    for (const EvaluationSet& set : *sets) {
      std::int64_t shortest = kEvaluationTokens;
      for (std::size_t i = 0; i < set.data.size(); ++i) {
        shortest = std::min(shortest, rows_of(set.data, i, job.padding));
      }
      const auto examples = static_cast<std::int64_t>(set.data.size());
      const std::int64_t short_examples = kEvaluationTokens / std::max<std::int64_t>(shortest, 1);
      const std::int64_t most = std::min(examples, std::max(batch, short_examples));
      const std::int64_t tokens =
          std::max(longest_tokens(set.data, batch, job.padding),
                   std::min(longest_tokens(set.data, most, job.padding), kEvaluationTokens));
      limits.examples = std::max(limits.examples, most);
      limits.tokens = std::max(limits.tokens, tokens);
      limits.max_seqlen = std::max(limits.max_seqlen, longest_tokens(set.data, 1, job.padding));
    }
  }
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
  const auto activation_bytes = [&](const nn::BatchLimits& limits, nn::Use use) -> std::uint64_t {
    return Model::activation_bytes(job.model.encoder, context, limits, job.settings.virtual_shards,
                                   use);
  };
  const std::uint64_t training = activation_bytes(plan.training, nn::Use::kTraining);
  const std::uint64_t evaluation = activation_bytes(plan.evaluation, nn::Use::kInference);
  const bool evaluation_is_largest = evaluation > training;
  estimate.activations = std::max(training, evaluation);
  estimate.gradients = static_cast<std::uint64_t>(plan.gradient_elements) *
                       static_cast<std::uint64_t>(plan.gradient_buffers) * sizeof(float);
  estimate.tokens = evaluation_is_largest ? plan.evaluation.tokens : plan.training.tokens;
  estimate.can_recompute = !evaluation_is_largest && !job.settings.gradient_checkpointing;
  estimate.batch_flag =
      evaluation_is_largest ? "per_device_eval_batch_size" : "per_device_train_batch_size";
  return estimate;
}

template MemoryEstimate estimate_memory(const Job&, const nn::Context<float>&, const MemoryPlan&);
template MemoryEstimate estimate_memory(const Job&, const nn::Context<runtime::bf16>&,
                                        const MemoryPlan&);

}  // namespace tilewright::train
