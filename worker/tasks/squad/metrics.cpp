#include "worker/tasks/squad/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/base/result.h"
#include "worker/tasks/squad/python_text.h"
#include "worker/text/utf8.h"

namespace tilewright::tasks::squad {
namespace {

bool is_ascii_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

// Calls visit(run, is_word) for every maximal run of word characters, and of other characters: the
// words of the text for \b(a|an|the)\b.
template <typename Visit>
void for_each_run(std::string_view text, const Visit& visit) {
  std::size_t begin = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const text::Decoded next = text::decode_utf8(text, at);
    const bool word = is_python_word(next.code_point);
    if (word != in_word && at > begin) {
      visit(text.substr(begin, at - begin), in_word);
      begin = at;
    }
    in_word = word;
    at += next.size;
  }
  if (begin < text.size()) visit(text.substr(begin), in_word);
}

std::vector<std::string> normalised_words(std::string_view text) {
  const std::string normalised = normalise_answer(text);
  std::vector<std::string> words;
  for (const std::string_view word : python_split(normalised)) words.emplace_back(word);
  return words;
}

// 2 pr / (p + r) of the words that both texts have, each as often as in both.
double word_f1(std::vector<std::string> gold, std::vector<std::string> predicted) {
  std::sort(gold.begin(), gold.end());
  std::sort(predicted.begin(), predicted.end());
  std::vector<std::string> common;
  std::set_intersection(gold.begin(), gold.end(), predicted.begin(), predicted.end(),
                        std::back_inserter(common));
  if (common.empty()) return 0;
  const auto same = static_cast<double>(common.size());
  const double precision = same / static_cast<double>(predicted.size());
  const double recall = same / static_cast<double>(gold.size());
  return 2 * precision * recall / (precision + recall);
}

struct AnswerScores {
  std::vector<double> exact, f1;  // by question
};

double mean_percent(std::span<const double> values, std::span<const std::size_t> chosen) {
  double sum = 0;
  for (const std::size_t i : chosen) sum += values[i];
  return 100.0 * sum / static_cast<double>(chosen.size());
}

// Only a question with an answer, or a v2 gold answer of no words, matches nothing.
AnswerScores raw_scores_v2(const Examples& examples, std::span<const std::string> predictions) {
  AnswerScores scores;
  for (std::size_t i = 0; i < examples.questions.size(); ++i) {
    std::vector<std::vector<std::string>> golds;
    for (const Answer& answer : examples.questions[i].answers) {
      std::vector<std::string> words = normalised_words(answer.text);
      if (!words.empty()) golds.push_back(std::move(words));
    }
    if (golds.empty()) golds.emplace_back();
    const std::vector<std::string> predicted = normalised_words(predictions[i]);
    double exact = 0;
    double f1 = 0;
    for (const auto& gold : golds) {
      const bool same = gold == predicted;
      exact = std::max(exact, same ? 1.0 : 0.0);
      f1 = std::max(
          f1, gold.empty() || predicted.empty() ? (same ? 1.0 : 0.0) : word_f1(gold, predicted));
    }
    scores.exact.push_back(exact);
    scores.f1.push_back(f1);
  }
  return scores;
}

struct Best {
  double percent = 0;
  double threshold = 0;
};

// The best mean if questions whose probability of no answer exceeds a threshold count as
// unanswered: begins with all of them unanswered, and answers them by ascending probability.
Best best_threshold(const Examples& examples, std::span<const std::string> predictions,
                    std::span<const double> scores, std::span<const double> probabilities) {
  const auto count = examples.questions.size();
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return probabilities[a] < probabilities[b];
  });
  double current = 0;
  for (const Question& question : examples.questions) current += question.answers.empty() ? 1 : 0;
  Best best = {current, 0};
  for (const std::size_t i : order) {
    if (!examples.questions[i].answers.empty()) {
      current += scores[i];
    } else if (!predictions[i].empty()) {
      current -= 1;
    }
    if (current > best.percent) best = {current, probabilities[i]};
  }
  best.percent = 100.0 * best.percent / static_cast<double>(count);
  return best;
}

void check_count(const Examples& examples, std::span<const std::string> predictions) {
  TW_CHECK(predictions.size() == examples.questions.size() && !predictions.empty(),
           "{} predictions for {} questions", predictions.size(), examples.questions.size());
}

}  // namespace

std::string normalise_answer(std::string_view text) {
  std::string kept = python_lower(text);
  std::erase_if(kept, is_ascii_punctuation);
  std::string without_articles;
  for_each_run(kept, [&](std::string_view run, bool is_word) {
    const bool article = is_word && (run == "a" || run == "an" || run == "the");
    without_articles += article ? std::string_view(" ") : run;
  });
  std::string normalised;
  for (const std::string_view word : python_split(without_articles)) {
    if (!normalised.empty()) normalised += ' ';
    normalised += word;
  }
  return normalised;
}

Metrics score_v1(const Examples& examples, std::span<const std::string> predictions) {
  check_count(examples, predictions);
  double exact_sum = 0;
  double f1_sum = 0;
  for (std::size_t i = 0; i < examples.questions.size(); ++i) {
    const Question& question = examples.questions[i];
    if (question.answers.empty()) {
      throw Failure(ExitCode::kData,
                    fmt::format("question {} has no answers, expected at least one; "
                                "--version_2_with_negative accepts questions without",
                                quoted_excerpt(question.id)));
    }
    const std::vector<std::string> predicted = normalised_words(predictions[i]);
    double exact = 0;
    double f1 = 0;
    for (const Answer& answer : question.answers) {
      const std::vector<std::string> gold = normalised_words(answer.text);
      exact = std::max(exact, gold == predicted ? 1.0 : 0.0);
      f1 = std::max(f1, word_f1(gold, predicted));
    }
    exact_sum += exact;
    f1_sum += f1;
  }
  const auto count = static_cast<double>(examples.questions.size());
  return {{"exact_match", 100.0 * exact_sum / count}, {"f1", 100.0 * f1_sum / count}};
}

Metrics score_v2(const Examples& examples, std::span<const std::string> predictions,
                 std::span<const double> no_answer_probabilities) {
  check_count(examples, predictions);
  const std::vector<double> zeros(examples.questions.size(), 0.0);
  const std::span<const double> probabilities =
      no_answer_probabilities.empty() ? std::span<const double>(zeros) : no_answer_probabilities;
  TW_CHECK(probabilities.size() == predictions.size(), "{} probabilities for {} questions",
           probabilities.size(), predictions.size());
  const AnswerScores scores = raw_scores_v2(examples, predictions);
  std::vector<std::size_t> all(examples.questions.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::vector<std::size_t> with_answer, without_answer;
  for (const std::size_t i : all) {
    (examples.questions[i].answers.empty() ? without_answer : with_answer).push_back(i);
  }
  Metrics metrics;
  const auto add = [&](const std::string& prefix, std::span<const std::size_t> chosen) {
    if (chosen.empty()) return;
    metrics.emplace_back(prefix + "exact", mean_percent(scores.exact, chosen));
    metrics.emplace_back(prefix + "f1", mean_percent(scores.f1, chosen));
    metrics.emplace_back(prefix + "total", static_cast<double>(chosen.size()));
  };
  add("", all);
  add("HasAns_", with_answer);
  add("NoAns_", without_answer);
  const Best exact = best_threshold(examples, predictions, scores.exact, probabilities);
  const Best f1 = best_threshold(examples, predictions, scores.f1, probabilities);
  metrics.emplace_back("best_exact", exact.percent);
  metrics.emplace_back("best_exact_thresh", exact.threshold);
  metrics.emplace_back("best_f1", f1.percent);
  metrics.emplace_back("best_f1_thresh", f1.threshold);
  return metrics;
}

}  // namespace tilewright::tasks::squad
