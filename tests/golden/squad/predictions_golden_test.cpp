// Compares the files of predictions, byte by byte, and the metrics, digit by digit, with those of
// the reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "common/base/sha256.h"
#include "tests/golden/squad/squad_golden.h"
#include "tests/golden/text/fuzz.h"
#include "worker/runtime/split_mix.h"
#include "worker/tasks/squad/features.h"
#include "worker/tasks/squad/metrics.h"
#include "worker/tasks/squad/postprocess.h"
#include "worker/tasks/squad/prediction_files.h"

namespace tilewright::tasks::squad {
namespace {

// make_predictions of write_squad_goldens.py.
std::vector<std::string> make_predictions(const Examples& examples) {
  std::vector<std::string> predictions;
  for (std::size_t i = 0; i < examples.questions.size(); ++i) {
    const auto& answers = examples.questions[i].answers;
    const std::string gold = answers.empty() ? "" : answers[0].text;
    const std::string random = testing::fuzz_string(i);
    std::string swapped = gold;
    if (std::all_of(gold.begin(), gold.end(), [](char c) { return c >= 0; })) {
      for (char& c : swapped) {
        c = static_cast<char>(std::isupper(c) != 0 ? std::tolower(c) : std::toupper(c));
      }
    }
    const std::vector<std::string> all = {gold,
                                          fmt::format("THE {}!", gold),
                                          gold.substr(0, gold.find(' ')),
                                          random,
                                          "",
                                          fmt::format("{} {}", gold, random),
                                          fmt::format("{}\u00a0an\u2003{}", gold, gold),
                                          swapped};
    predictions.push_back(all[i % all.size()]);
  }
  return predictions;
}

void expect_metrics(const Metrics& found, const nlohmann::json& golden, const std::string& name) {
  ASSERT_EQ(found.size(), golden.size()) << name;
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].first, golden[i][0].get<std::string>()) << name;
    EXPECT_EQ(found[i].second, golden[i][1].get<double>()) << name << " " << found[i].first;
  }
}

TEST(SquadPredictions, HaveTheReferenceFilesAndMetrics) {
  TILEWRIGHT_NEEDS(testing::model_dir() / "tokenizer.json", "TILEWRIGHT_MODEL_DIR");
  TILEWRIGHT_NEEDS(testing::data_dir() / "squad/dev-v2.0.json", "TILEWRIGHT_DATA_DIR");
  const text::Tokenizer tokenizer = testing::model_tokenizer(true);
  const auto goldens = testing::squad_goldens().at("predictions");
  EXPECT_EQ(goldens.size(), 6U);
  for (const auto& golden : goldens) {
    const auto file = golden.at("file").get<std::string>();
    const QuestionAnsweringOptions options = {
        .doc_stride = golden.at("doc_stride"),
        .version_2_with_negative = golden.at("version_2_with_negative"),
        .null_score_diff_threshold = golden.at("null_score_diff_threshold"),
        .n_best_size = golden.at("n_best_size"),
        .max_answer_length = golden.at("max_answer_length")};
    const std::string name = file + ", n_best_size " + std::to_string(options.n_best_size);
    const Examples examples = testing::squad_examples(file);
    const Features features = make_features(
        examples, tokenizer,
        {.max_seq_length = golden.at("max_seq_length"), .doc_stride = options.doc_stride}, file);
    const std::vector<Prediction> predictions =
        postprocess(examples, features, testing::make_logits(features), options);
    const auto files =
        make_prediction_files(examples, predictions, "eval", options.version_2_with_negative);
    const auto hashes = golden.at("files").get<std::map<std::string, std::string>>();
    ASSERT_EQ(files.size(), hashes.size()) << name;
    for (const auto& [path, content] : files) {
      EXPECT_EQ(sha256_hex(content), hashes.at(path)) << name << " " << path;
    }
    std::vector<std::string> answers;
    answers.reserve(predictions.size());
    for (const Prediction& prediction : predictions) answers.push_back(prediction.answer);
    expect_metrics(
        options.version_2_with_negative ? score_v2(examples, answers) : score_v1(examples, answers),
        golden.at("metrics"), name);
  }
}

TEST(SquadMetrics, EqualTheReferenceForPerturbedAnswers) {
  TILEWRIGHT_NEEDS(testing::data_dir() / "squad/dev-v2.0.json", "TILEWRIGHT_DATA_DIR");
  const auto golden = testing::squad_goldens().at("metrics");
  const Examples examples = testing::squad_examples("dev-v2.0.json");
  const std::vector<std::string> predictions = make_predictions(examples);
  expect_metrics(score_v2(examples, predictions), golden.at("v2"), "v2");
  runtime::SplitMix64 random(2016);
  std::vector<double> probabilities;
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    probabilities.push_back(static_cast<double>(random.next() % 64) / 64);
  }
  expect_metrics(score_v2(examples, predictions, probabilities), golden.at("v2_with_probabilities"),
                 "v2 with probabilities");
  Examples answered;
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    if (examples.questions[i].answers.empty()) continue;
    answered.questions.push_back(examples.questions[i]);
    kept.push_back(predictions[i]);
  }
  expect_metrics(score_v1(answered, kept), golden.at("v1"), "v1");
}

}  // namespace
}  // namespace tilewright::tasks::squad
