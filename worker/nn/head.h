// What a model predicts. It decides which layers follow the encoder and which loss is trained.
#pragma once

#include <cstdint>

namespace tilewright::nn {

enum class Head {
  kClassification,     // one class per example: logits [B, num_labels], cross entropy
  kRegression,         // one number per example: logits [B, 1], squared error
  kQuestionAnswering,  // first and last token of an answer: logits [T, 2], the mean of the cross
                       // entropies of both, each over the tokens of the example
};

// What an example's loss compares the logits with. Fields that the head does not use are 0.
struct Target {
  std::int32_t label = 0;  // the class, or the answer's first token, counted within the example
  std::int32_t last = 0;   // the answer's last token
  float value = 0;         // of a regression
};

}  // namespace tilewright::nn
