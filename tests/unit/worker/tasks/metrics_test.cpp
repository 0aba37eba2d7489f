// The expected values were computed with scikit-learn 1.x.
#include "worker/tasks/metrics.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tilewright::tasks
