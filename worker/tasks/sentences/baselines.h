// Predictions without a model, to compare a fine-tuned model with: majority class and word overlap.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::tasks::sentences {

// One row as text; `second` is empty for tasks of single sentences.
struct Example {
  std::string first;
  std::string second;
  std::int32_t label = 0;
  float value = 0;  // of a regression
};

// The most frequent label of `train` (on a tie the smallest) for each example of dev.
std::vector<std::int32_t> majority_class(const std::vector<Example>& train,
                                         const std::vector<Example>& dev);

// Jaccard index |A n B| / |A u B| of the sets of lower-cased words, without punctuation. 0 if
// neither string has a word.
double word_overlap(std::string_view first, std::string_view second);

// For pairs with two labels: one label above a threshold of word_overlap, the other below. The
// threshold, and which label is above, give the most correct answers on the first
// 50,000 examples of train.
std::vector<std::int32_t> overlap_rule(const std::vector<Example>& train,
                                       const std::vector<Example>& dev);

// For a regression: the mean of the training values.
std::vector<float> mean_value(const std::vector<Example>& train, const std::vector<Example>& dev);

}  // namespace tilewright::tasks::sentences
