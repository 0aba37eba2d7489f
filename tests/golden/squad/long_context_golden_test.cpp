// Compares the windows, features and predictions of a context of 10,000 words, whose answers are at
// its beginning, in its middle and at its end, with the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/sha256.h"
#include "tests/golden/squad/squad_golden.h"
#include "worker/runtime/split_mix.h"
#include "worker/tasks/squad/features.h"
#include "worker/tasks/squad/postprocess.h"
#include "worker/tasks/squad/prediction_files.h"
#include "worker/tasks/squad/python_text.h"

namespace tilewright::tasks::squad {
namespace {

// LONG_WORDS, LONG_COUNT, LONG_ANSWERS and long_examples of write_squad_goldens.py.
constexpr std::array kWords = {"river", "Z\u00fcrich", "unbelievably",   "7,300", "caf\u00e9",
                               "x-ray", "stone.",      "\u6587\u5b57",   "the",   "lamplighters",
                               "(or)",  "na\u00efve",  "I\u0307stanbul", "of"};
constexpr std::size_t kCount = 10'000;
const std::map<std::size_t, std::string> kAnswers = {
    {0, "Saffron"}, {5'000, "three green herons"}, {9'999, "Quetzal"}};

Examples long_examples() {
  runtime::SplitMix64 random(10'000);
  std::vector<std::string> words;
  for (std::size_t i = 0; i < kCount; ++i) {
    words.emplace_back(kWords[random.next() % kWords.size()]);
  }
  for (const auto& [first, answer] : kAnswers) {
    std::istringstream in(answer);
    std::size_t at = first;
    for (std::string word; in >> word; ++at) words.at(at) = word;
  }
  std::string context;
  for (const std::string& word : words) context += (context.empty() ? "" : " ") + word;
  ExamplesBuilder builder("long");
  for (const auto& [first, answer] : kAnswers) {
    const auto start = count_code_points(context.substr(0, context.find(answer)));
    builder.add({.id = "q" + std::to_string(first),
                 .context = context,
                 .question = "What is word " + std::to_string(first) + "?",
                 .answers = {{answer, static_cast<std::int64_t>(start)}}});
  }
  return std::move(builder).finish();
}

TEST(LongContext, HasTheWindowsFeaturesAndPredictionsOfTheReference) {
  TILEWRIGHT_NEEDS(testing::model_dir() / "tokenizer.json", "TILEWRIGHT_MODEL_DIR");
  const Examples examples = long_examples();
  const auto goldens = testing::squad_goldens().at("long_context");
  ASSERT_EQ(goldens.size(), testing::feature_cases().size());
  for (const auto& [name, golden] : goldens.items()) {
    SCOPED_TRACE(name);
    const auto& chosen = testing::feature_cases().at(name);
    const Features made =
        make_features(examples, testing::model_tokenizer(chosen.lowercase), chosen.options, "long");
    std::vector<std::size_t> windows(kAnswers.size()), with_answer(kAnswers.size());
    for (const Feature& feature : made.features) {
      ++windows[feature.question];
      if (feature.end > 0) ++with_answer[feature.question];
    }
    EXPECT_EQ(windows, golden.at("windows").get<std::vector<std::size_t>>());
    EXPECT_EQ(with_answer, golden.at("with_answer").get<std::vector<std::size_t>>());
    EXPECT_EQ(std::ranges::count(with_answer, 0U), 0);
    EXPECT_EQ(testing::feature_hashes(examples, made),
              std::vector{golden.at("hash").get<std::string>()});
    const auto files = make_prediction_files(
        examples, postprocess(examples, made, testing::make_logits(made), {}), "eval", false);
    const auto hashes = golden.at("files").get<std::map<std::string, std::string>>();
    ASSERT_EQ(files.size(), hashes.size());
    for (const auto& [path, content] : files) {
      EXPECT_EQ(sha256_hex(content), hashes.at(path)) << path;
    }
  }
}

}  // namespace
}  // namespace tilewright::tasks::squad
