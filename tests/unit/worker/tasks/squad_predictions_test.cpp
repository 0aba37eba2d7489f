#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/worker/tasks/squad_builders.h"
#include "worker/tasks/squad/features.h"
#include "worker/tasks/squad/numpy_math.h"
#include "worker/tasks/squad/postprocess.h"
#include "worker/tasks/squad/prediction_files.h"

namespace tilewright::tasks::squad {
namespace {

using ::testing::ElementsAre;

// One window: [CLS] x [SEP] a b x [SEP]. Logits of a token are {start, end}.
struct OneWindow {
  Examples examples = examples_of("a b x", {{"q\u00e9\"", "x", 0, {{"b", 2}}}});
  Features features = make_features(examples, tiny_tokenizer(), {}, "f");
  std::vector<float> logits = std::vector<float>(14, -10);

  void set(std::size_t token, float start, float end) {
    logits[2 * token] = start;
    logits[2 * token + 1] = end;
  }
  Prediction predict(const QuestionAnsweringOptions& options) const {
    return postprocess(examples, features, logits, options).at(0);
  }
};

TEST(Postprocess, ChoosesTheBestPairInTheContext) {
  OneWindow window;
  window.set(1, 9, 9);  // of the question
  window.set(3, 1, 0);
  window.set(4, 2, -1);
  window.set(5, 0, 3);
  const Prediction found = window.predict({});
  EXPECT_EQ(found.answer, "b x");
  ASSERT_EQ(found.n_best.size(), 6U);
  EXPECT_EQ(found.n_best[1].text, "a b x");
  EXPECT_EQ(found.n_best[0].start_logit, 2);
  EXPECT_EQ(found.n_best[0].end_logit, 3);
  double sum = 0;
  for (const Candidate& one : found.n_best) sum += one.probability;
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_NEAR(found.n_best[1].probability / found.n_best[0].probability, std::exp(-1.0), 1e-6);
}

TEST(Postprocess, KeepsAnswersToTheMaximalLengthAndTheListToItsSize) {
  OneWindow window;
  window.set(3, 5, 0);
  window.set(5, 0, 5);
  EXPECT_EQ(window.predict({}).answer, "a b x");
  EXPECT_EQ(window.predict({.max_answer_length = 2}).answer, "a")
      << "5 + 0; x has 0 + 5 and is next";
  EXPECT_EQ(window.predict({.n_best_size = 2}).n_best.size(), 2U);
}

TEST(Postprocess, GivesThePlaceholderIfNoPairIsAnAnswer) {
  OneWindow window;
  window.set(5, 9, 0);  // begins after every end but its own
  window.set(3, 0, 9);
  const Prediction found = window.predict({.n_best_size = 1});
  EXPECT_EQ(found.answer, "empty");
  ASSERT_EQ(found.n_best.size(), 1U);
  EXPECT_EQ(found.n_best[0].probability, 1);
  const Prediction negative = window.predict({.version_2_with_negative = true, .n_best_size = 1});
  EXPECT_EQ(negative.answer, "empty") << "-20 for no answer is less than the placeholder's 0";
  ASSERT_EQ(negative.n_best.size(), 2U);
  EXPECT_EQ(negative.n_best[1].text, "");
  EXPECT_DOUBLE_EQ(negative.n_best[1].probability, std::exp(-20.0) / (1 + std::exp(-20.0)));
  EXPECT_EQ(negative.null_odds, -20);
}

TEST(Postprocess, PredictsNoAnswerAboveTheThreshold) {
  OneWindow window;
  window.set(0, 2, 2);
  window.set(4, 1, 2);
  const auto with_threshold = [&](double threshold) {
    return window.predict(
        {.version_2_with_negative = true, .null_score_diff_threshold = threshold});
  };
  EXPECT_EQ(with_threshold(0).answer, "");
  EXPECT_EQ(with_threshold(0).null_odds, 1);
  EXPECT_EQ(with_threshold(1).answer, "b") << "not more than the threshold";
  EXPECT_EQ(window.predict({}).answer, "b") << "v1.1 has no such questions";
}

TEST(Postprocess, TakesTheSmallestScoreOfNoAnswerOverTheWindows) {
  // Windows [a b], [b x] of one token's overlap.
  const Examples examples = examples_of("a b x", {{"q", "x"}});
  const Features features =
      make_features(examples, tiny_tokenizer(), {.max_seq_length = 6, .doc_stride = 1}, "f");
  ASSERT_EQ(features.features.size(), 2U);
  std::vector<float> logits(24, 0);
  logits[0] = 5;   // [CLS] of the first window
  logits[12] = 3;  // of the second
  logits[2 * 6 + 2 * 4] = 1;
  const auto found =
      postprocess(examples, features, logits, {.version_2_with_negative = true}).at(0);
  EXPECT_EQ(found.null_odds, 2) << "3 - 1, not 5 - 1";
  EXPECT_EQ(found.answer, "");
}

TEST(Postprocess, LeavesAQuestionWithoutFeaturesUnanswered) {
  const Examples examples = examples_of("a", {{"q", "x"}, {"r", "x"}});
  const Features features = make_features(examples, tiny_tokenizer(), {.max_features = 1}, "f");
  const std::vector<float> logits(10, 0);
  EXPECT_EQ(postprocess(examples, features, logits, {}).at(1).answer, "empty");
  EXPECT_EQ(postprocess(examples, features, logits, {.version_2_with_negative = true}).at(1).answer,
            "");
}

// Expected values are those of NumPy 2.4.6 on a CPU with AVX-512, and equal without it.
TEST(NumpyMath, ExpHasNumpysBits) {
  EXPECT_EQ(numpy_exp(0), 1.0F);
  EXPECT_EQ(numpy_exp(-1), 0x1.78b562p-2F);
  EXPECT_EQ(numpy_exp(-87.5F), 0x1.b2cafp-127F) << "subnormal";
  EXPECT_EQ(numpy_exp(-104), 0.0F);
  EXPECT_TRUE(std::isnan(numpy_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(NumpyMath, LargestIndicesPutNanFirstAndTheLastOfEqualValuesBeforeTheOthers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(largest_indices(std::vector<float>{1, 3, 3, nan, 2}, 4), ElementsAre(3, 2, 1, 4));
  EXPECT_THAT(largest_indices(std::vector<float>{1, 2}, 5), ElementsAre(1, 0));
  EXPECT_TRUE(largest_indices(std::vector<float>{1, 2}, 0).empty());
}

TEST(PredictionFiles, AreWrittenAsJsonDumpsDoes) {
  OneWindow window;
  window.set(4, 1, 2);
  const QuestionAnsweringOptions options = {.version_2_with_negative = true, .n_best_size = 1};
  const auto predictions = postprocess(window.examples, window.features, window.logits, options);
  const auto files = make_prediction_files(window.examples, predictions, "predict", true);
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files.at("predict_predictions.json"), "{\n    \"q\\u00e9\\\"\": \"b\"\n}\n");
  EXPECT_EQ(files.at("predict_null_odds.json"), "{\n    \"q\\u00e9\\\"\": -23.0\n}\n");
  EXPECT_EQ(files.at("predict_nbest_predictions.json"),
            R"({
    "q\u00e9\"": [
        {
            "start_logit": 1.0,
            "end_logit": 2.0,
            "text": "b",
            "probability": 1.0
        },
        {
            "start_logit": -10.0,
            "end_logit": -10.0,
            "text": "",
            "probability": 1.0261878846673511e-10
        }
    ]
}
)");
  EXPECT_EQ(make_prediction_files(window.examples, predictions, "eval", false).size(), 2U);
}

TEST(PredictionFiles, PutThePlaceholdersTextFirst) {
  OneWindow window;
  window.set(5, 9, 0);
  window.set(3, 0, 9);
  const QuestionAnsweringOptions options = {.n_best_size = 1};
  const auto files = make_prediction_files(
      window.examples, postprocess(window.examples, window.features, window.logits, options),
      "eval", false);
  EXPECT_EQ(files.at("eval_nbest_predictions.json"),
            R"({
    "q\u00e9\"": [
        {
            "text": "empty",
            "start_logit": 0.0,
            "end_logit": 0.0,
            "probability": 1.0
        }
    ]
}
)");
}

TEST(PythonFloat, HasTheDigitsOfRepr) {
  EXPECT_EQ(python_float(0), "0.0");
  EXPECT_EQ(python_float(-0.0), "-0.0");
  EXPECT_EQ(python_float(1), "1.0");
  EXPECT_EQ(python_float(0.1), "0.1");
  EXPECT_EQ(python_float(static_cast<double>(0.1F)), "0.10000000149011612");
  EXPECT_EQ(python_float(1e-4), "0.0001");
  EXPECT_EQ(python_float(1e-5), "1e-05");
  EXPECT_EQ(python_float(-1.5e-7), "-1.5e-07");
  EXPECT_EQ(python_float(5e-324), "5e-324");
  EXPECT_EQ(python_float(1e15), "1000000000000000.0");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(1.7976931348623157e308), "1.7976931348623157e+308");
  EXPECT_EQ(python_float(-std::numeric_limits<double>::infinity()), "-Infinity");
  EXPECT_EQ(python_float(std::numeric_limits<double>::quiet_NaN()), "NaN");
}

TEST(PythonJsonString, IsAscii) {
  using std::string_literals::operator""s;
  EXPECT_EQ(python_json_string("a\"\\/\n\r\t\f\b\x01\x7f\0"s),
            R"("a\"\\/\n\r\t\f\b\u0001\u007f\u0000")");
  EXPECT_EQ(python_json_string("é文\U0001F600"), R"("\u00e9\u6587\ud83d\ude00")");
}

}  // namespace
}  // namespace tilewright::tasks::squad
