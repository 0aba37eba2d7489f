#include "worker/tasks/sentences/baselines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/tasks/builders.h"

namespace tilewright::tasks::sentences {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(Baselines, MajorityClassIsThatOfTheTrainingLabels) {
  const std::vector<Example> train = {{"", "", 1}, {"", "", 0}, {"", "", 1}};
  const std::vector<Example> dev = {{"", "", 0}, {"", "", 0}};
  EXPECT_THAT(majority_class(train, dev), ElementsAre(1, 1));
  EXPECT_THAT(majority_class({{"", "", 1}, {"", "", 0}}, dev), ElementsAre(0, 0)) << "a tie";
}

TEST(Baselines, WordOverlapIgnoresCaseAndPunctuation) {
  EXPECT_DOUBLE_EQ(word_overlap("The cat, the dog.", "the DOG"), 2.0 / 3.0);
  EXPECT_EQ(word_overlap("a b", "b a a"), 1);
  EXPECT_EQ(word_overlap("a", "b"), 0);
  EXPECT_EQ(word_overlap("", "!"), 0);
  EXPECT_EQ(word_overlap("Éa", "éA"), 1);
  EXPECT_EQ(word_overlap("é", "e"), 0) << "accents are not ignored";
}

TEST(Baselines, ThresholdMaximizesTrainingAccuracy) {
  const std::vector<Example> train = {
      {"a b c", "a b c", 1}, {"a b c", "a b x", 1}, {"a b c", "a y x", 0}, {"a", "b", 0}};
  const std::vector<Example> dev = {{"a b", "a b", 0}, {"a b c d", "a", 0}, {"x", "y", 1}};
  EXPECT_THAT(overlap_rule(train, dev), ElementsAre(1, 0, 0));
}

TEST(Baselines, HighOverlapCanPredictLabelZero) {
  const std::vector<Example> train = {{"a", "a", 0}, {"a", "b", 1}};
  EXPECT_THAT(overlap_rule(train, {{"x", "x", 0}, {"x", "y", 0}}), ElementsAre(0, 1));
}

TEST(Baselines, FallsBackToTheMajorityIfOverlapDoesNotHelp) {
  const std::vector<Example> train = {{"a", "a", 1}, {"a", "a", 1}, {"a", "a", 0}};
  EXPECT_THAT(overlap_rule(train, {{"x", "y", 0}, {"x", "x", 0}}), ElementsAre(1, 1));
}

TEST(Baselines, AreScoredWithTheMetricsOfTheTask) {
  const DataFolder folder;
  const std::string header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n";
  folder.write("train.tsv", header + "1\t1\t2\ta b\ta b\n1\t1\t2\ta\ta\n0\t1\t2\ta\tb\n");
  folder.write("dev.tsv", header + "1\t1\t2\tx\tx\n0\t1\t2\tx\ty\n");
  const std::vector<Baseline> found = make_task({.name = "mrpc"})->baselines(folder.path(), 0);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "majority");
  EXPECT_THAT(found[0].metrics[0], Pair("accuracy", 0.5));
  EXPECT_EQ(found[1].name, "word overlap");
  EXPECT_THAT(found[1].metrics[0], Pair("accuracy", 1.0));
}

// With --max_eval_samples; the rules are those of all training rows.
TEST(Baselines, AreThoseOfTheRowsThatAreEvaluated) {
  const DataFolder folder;
  folder.write("train.tsv", "sentence\tlabel\na\t1\nb\t1\nc\t0\n");
  folder.write("dev.tsv", "sentence\tlabel\na\t1\nb\t0\nc\t0\nd\t0\n");
  const auto majority = [&](std::size_t max_samples) {
    return make_task({.name = "sst2"})->baselines(folder.path(), max_samples).at(0).metrics;
  };
  EXPECT_THAT(majority(0), ElementsAre(Pair("accuracy", 0.25)));
  EXPECT_THAT(majority(2), ElementsAre(Pair("accuracy", 0.5)));
}

TEST(Baselines, SingleSentenceTasksHaveNoWordOverlap) {
  const DataFolder folder;
  folder.write("train.tsv", "sentence\tlabel\na\t1\n");
  folder.write("dev.tsv", "sentence\tlabel\na\t1\nb\t0\n");
  const std::vector<Baseline> found = make_task({.name = "sst2"})->baselines(folder.path(), 0);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].metrics, ElementsAre(Pair("accuracy", 0.5)));
}

TEST(Baselines, TheMeanIsThatOfTheTrainingValues) {
  const std::vector<Example> train = {{"", "", 0, 1.0F}, {"", "", 0, 4.0F}};
  EXPECT_THAT(mean_value(train, {{"", ""}, {"", ""}}), ElementsAre(2.5F, 2.5F));
}

TEST(Baselines, AreEmptyForCorrelationsAndWithoutTrainingRows) {
  const DataFolder folder;
  folder.write("dev.tsv", "sentence\tlabel\na\t1\n");
  EXPECT_TRUE(make_task({.name = "sst2"})->baselines(folder.path(), 0).empty());
  const DataFolder scores;
  for (const char* name : {"train.tsv", "dev.tsv"}) {
    scores.write(name, "sentence1\tsentence2\tscore\na\tb\t1\na\tb\t2\n");
  }
  EXPECT_TRUE(make_task({.name = "stsb"})->baselines(scores.path(), 0).empty());
}

}  // namespace
}  // namespace tilewright::tasks::sentences
