// Evaluation on the dev split. Each rank computes the logits of a part of the examples, all ranks
// gather all logits, and each computes the same metrics from them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/collectives/mesh.h"
#include "worker/collectives/shard_tree.h"
#include "worker/nn/bert.h"
#include "worker/train/job.h"

namespace tilewright::train {

struct EvaluationResult {
  tasks::Metrics metrics;
  double loss = 0;  // mean cross entropy
  double seconds = 0;
  std::size_t examples = 0;
};

// The examples that a rank evaluates: consecutive, sizes differing by at most one.
collectives::Range evaluation_range(int rank, int world, std::int64_t examples);

// `logits`: [examples, labels] in the order of the data set. Leaves `seconds` at 0. Throws
// Failure(kPeerLost) if the number of logits is wrong.
EvaluationResult score(const tasks::Task& task, const tasks::Dataset& data,
                       const std::vector<float>& logits);

template <typename Activation>
class Evaluator {
 public:
  // `job` and `model` outlive the evaluator.
  Evaluator(const Job& job, nn::BertClassifier<Activation>& model) : job_(job), model_(model) {}

  // Collective; every rank gets the result. Throws Failure(kPeerLost).
  EvaluationResult evaluate(collectives::Mesh& mesh);

 private:
  // Logits of examples [range.begin, range.end): [examples, labels].
  std::vector<float> compute_logits(collectives::Range range);

  const Job& job_;
  nn::BertClassifier<Activation>& model_;
  nn::Batch batch_;
};

}  // namespace tilewright::train
