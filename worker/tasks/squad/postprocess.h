// Chooses answers from the logits of all windows of a question, as postprocess_qa_predictions of
// Hugging Face's utils_qa does with NumPy 2.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "worker/tasks/question_answering_options.h"
#include "worker/tasks/squad/examples.h"
#include "worker/tasks/squad/features.h"

namespace tilewright::tasks::squad {

// An entry of the n-best list.
struct Candidate {
  std::string text;  // empty: no answer
  float start_logit = 0;
  float end_logit = 0;
  double probability = 0;             // softmax over the scores of the list
  bool placeholder = false;           // "empty", which stands in for a list without an answer
  text::CharacterSpan span = {0, 0};  // of the context; {0, 0}: no answer
};

struct Prediction {
  std::string answer;             // empty: the context does not answer the question
  std::vector<Candidate> n_best;  // by descending score
  float null_odds = 0;            // score of no answer minus that of the best answer

  // The entry of n_best that `answer` is; null if there is none.
  const Candidate* chosen() const;
};

// One prediction per question. `logits`: [tokens of all features, 2], start and end.
// Candidates are pairs of the n_best_size best starts and ends of a window, both in the context,
// with at most max_answer_length tokens; their score is the sum of both logits. The score of no
// answer is the smallest of [CLS] over the question's windows. A question without features, which
// max_features can leave behind, gets the placeholder.
std::vector<Prediction> postprocess(const Examples& examples, const Features& features,
                                    std::span<const float> logits,
                                    const QuestionAnsweringOptions& options);

}  // namespace tilewright::tasks::squad
