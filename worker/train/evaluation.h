// Evaluation spread over the workers: each takes a share of the examples, all see all logits, so
// that every rank computes the same metrics.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/collectives/mesh.h"
#include "worker/collectives/shard_tree.h"
#include "worker/train/trainer.h"

namespace tilewright::train {

// The examples that a rank evaluates: consecutive and balanced.
collectives::Range share_of(int rank, int world, std::int64_t examples);

// All ranks' logits in the order of the data set. Collective.
std::vector<float> gather_logits(collectives::Mesh& mesh, std::span<const float> own,
                                 MonotonicTime deadline);

// Metrics and mean cross entropy of logits [examples, labels].
EvaluationResult score(const tasks::Task& task, const tasks::Dataset& data,
                       const std::vector<float>& logits);

}  // namespace tilewright::train
