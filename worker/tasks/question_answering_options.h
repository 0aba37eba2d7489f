// Options of question answering, with the names and defaults of the flags of Hugging Face's run_qa.
#pragma once

#include <cstddef>

namespace tilewright::tasks {

struct QuestionAnsweringOptions {
  std::size_t doc_stride = 128;  // tokens by which consecutive windows of a long context overlap
  bool version_2_with_negative = false;  // a context may not answer its question
  // With version_2_with_negative: no answer is predicted if its score exceeds that of the best
  // answer by more than this.
  double null_score_diff_threshold = 0;
  std::size_t n_best_size = 20;        // answers kept per question
  std::size_t max_answer_length = 30;  // tokens
};

}  // namespace tilewright::tasks
