#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/result.h"
#include "common/contract/tasks.h"
#include "worker/tasks/squad/metrics.h"
#include "worker/tasks/squad/python_text.h"

namespace tilewright::tasks::squad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Golds = std::vector<std::string>;

Examples with_golds(const std::vector<Golds>& all) {
  Examples examples;
  for (const Golds& golds : all) {
    Question question{"q" + std::to_string(examples.questions.size()), "?", 0, {}};
    for (const std::string& gold : golds) question.answers.push_back({gold, 0});
    examples.questions.push_back(question);
  }
  return examples;
}

TEST(NormaliseAnswer, DropsCasePunctuationArticlesAndSpaces) {
  EXPECT_EQ(normalise_answer("The  quick, brown-FOX!"), "quick brownfox");
  EXPECT_EQ(normalise_answer("a theatre an\u00a0answer"), "theatre answer");
  EXPECT_EQ(normalise_answer("A.B."), "ab");
  EXPECT_EQ(normalise_answer("“The” end"), "“ ” end") << "only ASCII punctuation is dropped";
  EXPECT_EQ(normalise_answer("a\u0301 b"), "\u0301 b") << "a mark ends a word";
  EXPECT_EQ(normalise_answer("ΟΔΟΣ"), "οδος");
  EXPECT_EQ(normalise_answer("The a an"), "");
}

TEST(SquadMetrics, V1TakesTheBestGoldAnswer) {
  const Examples examples = with_golds({{"Denver Broncos", "the Broncos"}, {"the"}, {"x y z"}});
  // 1 and 1; 1 and 0, as no word is common; 0 and 2 * (2/2)(2/3) / (2/2 + 2/3).
  const Metrics found = score_v1(examples, std::vector<std::string>{"broncos.", "a", "Y x"});
  ASSERT_THAT(found, ElementsAre(Pair("exact_match", ::testing::DoubleEq(200.0 / 3)),
                                 Pair("f1", ::testing::_)));
  EXPECT_NEAR(found[1].second, 100 * 1.8 / 3, 1e-12);
}

TEST(SquadMetrics, V1CountsRepeatedWordsAsOftenAsBothHaveThem) {
  const Metrics found = score_v1(with_golds({{"b b c"}}), std::vector<std::string>{"b b b"});
  EXPECT_NEAR(found[1].second, 100 * 2.0 / 3, 1e-12);
}

TEST(SquadMetrics, V1RefusesAQuestionWithoutAnswers) {
  try {
    score_v1(with_golds({{}}), std::vector<std::string>{""});
    FAIL() << "scored";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kData);
    EXPECT_THAT(failure.what(), HasSubstr("question \"q0\" has no answers"));
  }
}

TEST(SquadMetrics, V2SeparatesQuestionsWithAndWithoutAnswers) {
  const Examples examples = with_golds({{"b"}, {}, {}, {"the"}});
  const Metrics found = score_v2(examples, std::vector<std::string>{"b c", "", "wrong", "an"});
  const auto is = [](double value) { return ::testing::DoubleEq(value); };
  EXPECT_THAT(
      found,
      ElementsAre(Pair("exact", is(50)), Pair("f1", is(100 * (2.0 / 3 + 2) / 4)), Pair("total", 4),
                  Pair("HasAns_exact", is(50)), Pair("HasAns_f1", is(100 * (2.0 / 3 + 1) / 2)),
                  Pair("HasAns_total", 2), Pair("NoAns_exact", is(50)), Pair("NoAns_f1", is(50)),
                  Pair("NoAns_total", 2), Pair("best_exact", is(50)), Pair("best_exact_thresh", 0),
                  Pair("best_f1", is(100 * (2 + 2.0 / 3) / 4)), Pair("best_f1_thresh", 0)));
}

// --metric_for_best_model is checked against this list before a training.
TEST(SquadMetrics, HaveTheNamesOfTheContract) {
  const auto names = [](const Metrics& metrics) {
    std::vector<std::string_view> found;
    for (const auto& [name, value] : metrics) found.push_back(name);
    return found;
  };
  const std::vector<std::string> predictions = {"b", ""};
  const Metrics v1 = score_v1(with_golds({{"b"}, {"c"}}), predictions);
  EXPECT_EQ(names(v1), evaluation_metrics("squad", false));
  const Metrics v2 = score_v2(with_golds({{"b"}, {}}), predictions);
  EXPECT_EQ(names(v2), evaluation_metrics("squad_v2", false));
}

TEST(SquadMetrics, V2OmitsGroupsWithoutQuestions) {
  const Metrics found = score_v2(with_golds({{"b"}}), std::vector<std::string>{"b"});
  ASSERT_EQ(found.size(), 10U);
  EXPECT_EQ(found[3].first, "HasAns_exact");
  EXPECT_EQ(found[6].first, "best_exact");
}

TEST(SquadMetrics, V2FindsTheBestThreshold) {
  // All unanswered: 1 of 3. Answering up to 0.2 adds q0, up to 0.7 loses q1.
  const Examples examples = with_golds({{"b"}, {}, {"c"}});
  const Metrics found = score_v2(examples, std::vector<std::string>{"b", "wrong", "wrong"},
                                 std::vector<double>{0.2, 0.7, 0.9});
  EXPECT_NEAR(found[9].second, 200.0 / 3, 1e-12);
  EXPECT_EQ(found[10], (std::pair<std::string, double>("best_exact_thresh", 0.2)));
}

TEST(PythonText, SplitsAndStripsAtUnicodeWhiteSpace) {
  EXPECT_THAT(python_split("\u3000a\x1f"
                           "b\u00a0\tc"),
              ElementsAre("a", "b", "c"));
  EXPECT_EQ(python_lstrip(" \n\u2003x "), "x ");
  EXPECT_EQ(python_lstrip("\u200bx"), "\u200bx") << "not white space";
}

TEST(CodePoints, SliceByCharacters) {
  const CodePoints text("aé文b");
  EXPECT_EQ(text.size(), 4U);
  EXPECT_EQ(text.slice(1, 3), "é文");
  EXPECT_EQ(text.slice(4, 4), "");
  EXPECT_EQ(CodePoints("abc").slice(1, 2), "b");
}

}  // namespace
}  // namespace tilewright::tasks::squad
