// Evaluation. Each rank computes the logits of a part of the examples. Rank 0 gathers them, makes
// the predictions and sends the metrics to all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "worker/collectives/mesh.h"
#include "worker/collectives/shard_tree.h"
#include "worker/nn/model.h"
#include "worker/train/collective_limits.h"
#include "worker/train/job.h"

namespace tilewright::train {

struct EvaluationResult {
  std::string suffix = {};  // of EvaluationSet
  tasks::Metrics metrics = {};
  double loss = 0;  // mean over the examples, see nn::Head
  double seconds = 0;
  std::size_t examples = 0;
  std::int64_t steps = 0;                                    // batches of the rank that has most
  std::map<std::string, std::string> prediction_files = {};  // name -> content; rank 0 only
};

// `logits`: [rows, labels] as in Task::score(). Without labels the result has only the predictions
// and the number of examples. `label_smoothing`: in the loss of a classification, as in training.
// Leaves `seconds` at 0. Throws Failure(kPeerLost) if the number of logits is wrong.
EvaluationResult score(const tasks::Task& task, const EvaluationSet& set,
                       const std::vector<float>& logits, double label_smoothing);

// Returns the logits of all ranks, by rank, on rank 0, and nothing elsewhere. Collective. `total`:
// of all ranks. `deadline`: until which a rank waits for the others to have theirs, which then go
// in pieces of at most `piece` logits a rank. Throws Failure(kPeerLost).
std::vector<float> gather_logits(collectives::Mesh& mesh, std::span<const float> own,
                                 std::size_t total, MonotonicTime deadline,
                                 std::size_t piece = kPieceElements);

template <typename Activation>
class Evaluator {
 public:
  // `job` and `model` outlive the evaluator.
  Evaluator(const Job& job, nn::Model<Activation>& model) : job_(job), model_(model) {}

  // Collective; every rank gets the result, rank 0 alone the files. Throws Failure(kPeerLost), and
  // what `before_batch` throws, which is called before each batch.
  EvaluationResult evaluate(collectives::Mesh& mesh, const EvaluationSet& set,
                            const std::function<void()>& before_batch);

 private:
  // Logits of examples [range.begin, range.end) in rows as in Task::score().
  std::vector<float> compute_logits(const tasks::Dataset& data, collectives::Range range,
                                    const std::function<void()>& before_batch);

  void append_logits(std::span<const Activation> found, std::vector<float>& logits) const;

  const Job& job_;
  nn::Model<Activation>& model_;
  nn::Batch batch_;
};

}  // namespace tilewright::train
