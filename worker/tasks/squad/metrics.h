// The official metrics of SQuAD v1.1 and v2.0, as in Hugging Face's `evaluate`, in percent.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/tasks/metrics.h"
#include "worker/tasks/squad/examples.h"

namespace tilewright::tasks::squad {

// Lower case, without punctuation and articles, with single spaces.
std::string normalise_answer(std::string_view text);

// exact_match and f1: means over all questions of the best value over their gold answers. Throws
// Failure(kData) for a question without gold answers. `predictions`: one per question.
Metrics score_v1(const Examples& examples, std::span<const std::string> predictions);

// exact, f1 and total; the same for questions with answers (HasAns_) and without (NoAns_) where
// there are any; best_exact, best_exact_thresh, best_f1 and best_f1_thresh, the best values over
// all thresholds of the probability that there is no answer. run_qa gives 0 for all probabilities,
// which is meant by an empty list.
Metrics score_v2(const Examples& examples, std::span<const std::string> predictions,
                 std::span<const double> no_answer_probabilities = {});

}  // namespace tilewright::tasks::squad
