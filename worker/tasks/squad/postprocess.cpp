#include "worker/tasks/squad/postprocess.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "worker/tasks/squad/numpy_math.h"
#include "worker/tasks/squad/python_text.h"

namespace tilewright::tasks::squad {
namespace {

// A part of the context, or no answer, before the texts are taken.
struct Scored {
  text::CharacterSpan span;
  float score = 0;
  float start_logit = 0;
  float end_logit = 0;
  bool is_null = false;
};

class Postprocessor {
 public:
  Postprocessor(const Examples& examples, const Features& features, std::span<const float> logits,
                const QuestionAnsweringOptions& options)
      : examples_(examples), features_(features), logits_(logits), options_(options) {}

  // `begin`, `end`: the question's features. Questions come in order: their logits follow each
  // other.
  Prediction predict(const Question& question, std::size_t begin, std::size_t end) {
    scored_.clear();
    Scored null;
    for (std::size_t feature = begin; feature < end; ++feature) {
      split_logits(feature);
      const float score = starts_[0] + ends_[0];
      if (feature == begin || null.score > score) {
        null = {{0, 0}, score, starts_[0], ends_[0], true};
      }
      add_candidates(feature);
    }
    const bool has_null = options_.version_2_with_negative && begin < end;
    if (has_null) scored_.push_back(null);
    std::stable_sort(scored_.begin(), scored_.end(), [](const Scored& a, const Scored& b) {
      return std::isnan(a.score) ? !std::isnan(b.score) : a.score > b.score;
    });
    if (scored_.size() > options_.n_best_size) scored_.resize(options_.n_best_size);
    if (has_null && std::none_of(scored_.begin(), scored_.end(),
                                 [](const Scored& one) { return one.is_null; })) {
      scored_.push_back(null);
    }
    Prediction prediction;
    take_texts(question, prediction);
    choose(has_null, null.score, prediction);
    return prediction;
  }

 private:
  void split_logits(std::size_t feature) {
    const std::size_t tokens = features_.features[feature].length();
    starts_.resize(tokens);
    ends_.resize(tokens);
    for (std::size_t token = 0; token < tokens; ++token) {
      starts_[token] = logits_[2 * (row_ + token)];
      ends_[token] = logits_[2 * (row_ + token) + 1];
    }
    row_ += tokens;
  }

  void add_candidates(std::size_t feature) {
    const std::vector<std::size_t> best_starts = largest_indices(starts_, options_.n_best_size);
    const std::vector<std::size_t> best_ends = largest_indices(ends_, options_.n_best_size);
    for (const std::size_t start : best_starts) {
      const auto first = features_.span(examples_, feature, start);
      if (!first) continue;
      for (const std::size_t end : best_ends) {
        if (end < start || end - start + 1 > options_.max_answer_length) continue;
        const auto last = features_.span(examples_, feature, end);
        if (!last) continue;
        scored_.push_back({{first->begin, last->end},
                           starts_[start] + ends_[end],
                           starts_[start],
                           ends_[end],
                           false});
      }
    }
  }

  // Fills the n-best list with texts and probabilities.
  void take_texts(const Question& question, Prediction& prediction) const {
    const CodePoints context(examples_.contexts[question.context]);
    std::vector<float> scores;
    for (const Scored& one : scored_) {
      scores.push_back(one.score);
      prediction.n_best.push_back({std::string(context.slice(one.span.begin, one.span.end)),
                                   one.start_logit, one.end_logit, 0, false, one.span});
    }
    std::vector<Candidate>& list = prediction.n_best;
    if (list.empty()) {
      list.push_back({"empty", 0, 0, 1, true});
    } else if (list.size() == 1 && list[0].text.empty()) {
      // The script's list then has a Python float, so that its softmax is in double precision.
      const double largest = std::max(0.0, static_cast<double>(scores[0]));
      const double placeholder = std::exp(-largest);
      const double null = std::exp(static_cast<double>(scores[0]) - largest);
      list[0].probability = null / (placeholder + null);
      list.insert(list.begin(), {"empty", 0, 0, placeholder / (placeholder + null), true});
    } else {
      const std::vector<float> probabilities = numpy_softmax(scores);
      for (std::size_t i = 0; i < list.size(); ++i) {
        list[i].probability = static_cast<double>(probabilities[i]);
      }
    }
  }

  void choose(bool has_null, float null_score, Prediction& prediction) const {
    const std::vector<Candidate>& list = prediction.n_best;
    const auto best = std::find_if(list.begin(), list.end(),
                                   [](const Candidate& one) { return !one.text.empty(); });
    TW_CHECK(best != list.end(), "an n-best list of {} entries without an answer", list.size());
    prediction.answer = best->text;
    if (!options_.version_2_with_negative) return;
    prediction.null_odds = has_null ? null_score - best->start_logit - best->end_logit : 0;
    // NumPy 2 compares a float32 with a Python float in float32.
    if (!has_null ||
        prediction.null_odds > static_cast<float>(options_.null_score_diff_threshold)) {
      prediction.answer.clear();
    }
  }

  const Examples& examples_;
  const Features& features_;
  const std::span<const float> logits_;
  const QuestionAnsweringOptions& options_;
  std::size_t row_ = 0;               // of the next feature's first token
  std::vector<float> starts_, ends_;  // logits of the current feature
  std::vector<Scored> scored_;
};

}  // namespace

const Candidate* Prediction::chosen() const {
  const auto found = std::find_if(n_best.begin(), n_best.end(), [&](const Candidate& one) {
    return !one.placeholder && one.text == answer;
  });
  return found == n_best.end() ? nullptr : &*found;
}

std::vector<Prediction> postprocess(const Examples& examples, const Features& features,
                                    std::span<const float> logits,
                                    const QuestionAnsweringOptions& options) {
  std::size_t tokens = 0;
  for (const Feature& feature : features.features) tokens += feature.length();
  TW_CHECK(logits.size() == 2 * tokens, "{} logits for {} tokens", logits.size(), tokens);
  Postprocessor postprocessor(examples, features, logits, options);
  std::vector<Prediction> predictions;
  predictions.reserve(examples.questions.size());
  std::size_t feature = 0;
  for (std::size_t question = 0; question < examples.questions.size(); ++question) {
    const std::size_t begin = feature;
    while (feature < features.features.size() && features.features[feature].question == question) {
      ++feature;
    }
    predictions.push_back(postprocessor.predict(examples.questions[question], begin, feature));
  }
  return predictions;
}

}  // namespace tilewright::tasks::squad
