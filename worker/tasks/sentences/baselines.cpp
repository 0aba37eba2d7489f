#include "worker/tasks/sentences/baselines.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "worker/text/characters.h"
#include "worker/text/normaliser.h"
#include "worker/text/utf8.h"

namespace tilewright::tasks::sentences {
namespace {

std::set<std::string> words_of(std::string_view text) {
  const text::Normaliser normaliser({.handle_chinese_chars = true, .strip_accents = false});
  std::string lower;
  normaliser.normalise(text, lower);
  std::set<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.insert(word);
    word.clear();
  };
  for (std::size_t at = 0; at < lower.size();) {
    const text::Decoded next = text::decode_utf8(lower, at);
    at += next.size;
    if (text::is_whitespace(next.code_point) || text::is_punctuation(next.code_point)) {
      end_word();
    } else {
      text::append_utf8(next.code_point, word);
    }
  }
  end_word();
  return words;
}

struct Rule {
  double threshold;  // overlap >= threshold gives `above`
  std::int32_t above;
};

// More pairs do not change the threshold much, and those of QQP would take 10 seconds.
constexpr std::size_t kMaxRulePairs = 50'000;

// Tries every threshold between two neighbouring overlaps, both ways round.
Rule best_rule(std::span<const Example> train) {
  train = train.first(std::min(train.size(), kMaxRulePairs));
  std::vector<std::pair<double, std::int32_t>> scored;
  std::int64_t ones = 0;
  for (const Example& example : train) {
    scored.emplace_back(word_overlap(example.first, example.second), example.label);
    ones += example.label == 1 ? 1 : 0;
  }
  std::sort(scored.begin(), scored.end());
  const auto all = static_cast<std::int64_t>(scored.size());
  Rule best = {-1, 1};  // label 1 for every example
  std::int64_t most = ones;
  if (all - ones > most) {
    best = {-1, 0};
    most = all - ones;
  }
  std::int64_t ones_below = 0;
  for (std::int64_t below = 1; below <= all; ++below) {
    const auto i = static_cast<std::size_t>(below - 1);
    ones_below += scored[i].second == 1 ? 1 : 0;
    if (i + 1 < scored.size() && scored[i + 1].first == scored[i].first) continue;
    const double threshold = i + 1 < scored.size() ? (scored[i].first + scored[i + 1].first) / 2
                                                   : std::numeric_limits<double>::infinity();
    const std::int64_t right = (below - ones_below) + (ones - ones_below);  // with 1 above
    if (right > most) {
      best = {threshold, 1};
      most = right;
    }
    if (all - right > most) {
      best = {threshold, 0};
      most = all - right;
    }
  }
  return best;
}

}  // namespace

std::vector<std::int32_t> majority_class(const std::vector<Example>& train,
                                         const std::vector<Example>& dev) {
  std::map<std::int32_t, std::size_t> counts;
  for (const Example& example : train) ++counts[example.label];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return std::vector<std::int32_t>(dev.size(), most == counts.end() ? 0 : most->first);
}

double word_overlap(std::string_view first, std::string_view second) {
  const std::set<std::string> a = words_of(first);
  const std::set<std::string> b = words_of(second);
  std::size_t common = 0;
  for (const std::string& word : a) common += b.count(word);
  const std::size_t either = a.size() + b.size() - common;
  return either == 0 ? 0 : static_cast<double>(common) / static_cast<double>(either);
}

std::vector<std::int32_t> overlap_rule(const std::vector<Example>& train,
                                       const std::vector<Example>& dev) {
  const Rule rule = best_rule(train);
  std::vector<std::int32_t> predictions;
  predictions.reserve(dev.size());
  for (const Example& example : dev) {
    const bool above = word_overlap(example.first, example.second) >= rule.threshold;
    predictions.push_back(above ? rule.above : 1 - rule.above);
  }
  return predictions;
}

std::vector<float> mean_value(const std::vector<Example>& train, const std::vector<Example>& dev) {
  double sum = 0;
  for (const Example& example : train) sum += example.value;
  const double mean = train.empty() ? 0 : sum / static_cast<double>(train.size());
  return std::vector<float>(dev.size(), static_cast<float>(mean));
}

}  // namespace tilewright::tasks::sentences
