// The expected values were computed with scikit-learn 1.9 and SciPy 1.17 from the same numbers as
// float64.
#include "worker/tasks/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tilewright::tasks {
namespace {

using Labels = std::vector<std::int32_t>;

const Labels kPredicted = {1, 0, 1, 1, 0, 1, 0, 0, 1, 1};
const Labels kTrue = {1, 0, 0, 1, 1, 1, 0, 1, 1, 0};

TEST(Metrics, OfTwoClassesMatchScikitLearn) {
  EXPECT_DOUBLE_EQ(accuracy(kPredicted, kTrue), 0.6);
  EXPECT_DOUBLE_EQ(f1(kPredicted, kTrue), 0.6666666666666666);
  EXPECT_DOUBLE_EQ(matthews_correlation(kPredicted, kTrue), 0.16666666666666666);
}

TEST(Metrics, OfThreeClassesMatchScikitLearn) {
  const Labels predicted = {0, 1, 2, 2, 1, 0, 1};
  const Labels labels = {0, 2, 2, 2, 1, 1, 1};
  EXPECT_DOUBLE_EQ(accuracy(predicted, labels), 0.7142857142857143);
  EXPECT_DOUBLE_EQ(matthews_correlation(predicted, labels), 0.5809475019311126);
}

TEST(Metrics, AreZeroIfPredictionsOrLabelsAreConstant) {
  EXPECT_EQ(f1(Labels{0, 0}, Labels{0, 0}), 0);
  EXPECT_EQ(f1(Labels{0, 0}, Labels{1, 0}), 0);
  EXPECT_EQ(matthews_correlation(Labels{1, 1, 1}, Labels{1, 0, 1}), 0);
  EXPECT_EQ(matthews_correlation(Labels{1, 0, 1}, Labels{1, 1, 1}), 0);
}

TEST(Metrics, PerfectAndOppositePredictionsReachTheBounds) {
  const Labels labels = {0, 1, 1, 0};
  const Labels opposite = {1, 0, 0, 1};
  EXPECT_EQ(accuracy(labels, labels), 1);
  EXPECT_EQ(f1(labels, labels), 1);
  EXPECT_EQ(matthews_correlation(labels, labels), 1);
  EXPECT_EQ(accuracy(opposite, labels), 0);
  EXPECT_EQ(matthews_correlation(opposite, labels), -1);
}

TEST(Metrics, PredictionIsTheFirstIndexOfTheLargestLogit) {
  const std::vector<float> logits = {0.5F, 0.1F, -3.0F, -2.0F, 1.0F, 1.0F};
  EXPECT_EQ(predictions_of(logits, 2), (Labels{0, 1, 0}));
  EXPECT_EQ(predictions_of(logits, 3), (Labels{0, 1}));
}

using Values = std::vector<float>;

TEST(RegressionMetrics, MatchSciPyWithTies) {
  const Values predicted = {0.5F, 2.25F, 2.25F, 4.75F, 3.0F, -0.5F, 5.125F, 1.0F, 2.25F, 3.5F};
  const Values values = {1.0F, 2.0F, 3.2F, 5.0F, 3.2F, 0.0F, 4.4F, 1.8F, 2.0F, 2.6F};
  EXPECT_NEAR(pearson(predicted, values), 0.9420604060113462, 4e-16);
  EXPECT_NEAR(spearman(predicted, values), 0.9197706100322344, 4e-16);
  EXPECT_NEAR(mean_squared_error(predicted, values), 0.3605625066757227, 1e-16);
}

TEST(RegressionMetrics, CorrelationsReachTheirBoundsAndAreZeroForConstants) {
  EXPECT_NEAR(pearson(Values{1, 2, 3}, Values{2, 4, 6}), 1, 1e-15);
  EXPECT_NEAR(spearman(Values{1, 2, 3}, Values{9, 4, -6}), -1, 1e-15);
  EXPECT_EQ(pearson(Values{1, 1, 1}, Values{2, 4, 6}), 0);
  EXPECT_EQ(spearman(Values{1, 2, 3}, Values{5, 5, 5}), 0);
  EXPECT_TRUE(std::isnan(spearman(Values{1, std::nanf(""), 3}, Values{1, 2, 3})));
  EXPECT_EQ(pearson(Values{1}, Values{2}), 0);
}

}  // namespace
}  // namespace tilewright::tasks
