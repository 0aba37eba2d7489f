// Compares metrics with those of SciPy and scikit-learn. The sums are in another order, so that the
// last bits may differ.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "worker/tasks/metrics.h"

namespace tilewright::tasks {
namespace {

using nlohmann::json;

json golden() {
  return json::parse(testing::read_text(testing::source_dir() / "tests/golden/tasks/tasks.json"))
      .at("metrics");
}

TEST(RegressionMetrics, EqualSciPys) {
  for (const json& expected : golden().at("regression")) {
    const auto predictions = expected.at("predictions").get<std::vector<float>>();
    const auto values = expected.at("values").get<std::vector<float>>();
    SCOPED_TRACE(values.size());
    EXPECT_NEAR(pearson(predictions, values), expected.at("pearson").get<double>(), 2e-15);
    EXPECT_NEAR(spearman(predictions, values), expected.at("spearmanr").get<double>(), 2e-15);
    EXPECT_NEAR(mean_squared_error(predictions, values), expected.at("mse").get<double>(), 1e-14);
  }
}

TEST(ClassificationMetrics, EqualScikitLearns) {
  for (const json& expected : golden().at("classification")) {
    const auto predictions = expected.at("predictions").get<std::vector<std::int32_t>>();
    const auto labels = expected.at("labels").get<std::vector<std::int32_t>>();
    SCOPED_TRACE(labels.size());
    EXPECT_EQ(accuracy(predictions, labels), expected.at("accuracy").get<double>());
    EXPECT_NEAR(matthews_correlation(predictions, labels),
                expected.at("matthews_correlation").get<double>(), 1e-15);
    if (expected.contains("f1")) {
      EXPECT_NEAR(f1(predictions, labels), expected.at("f1").get<double>(), 1e-15);
    }
  }
}

}  // namespace
}  // namespace tilewright::tasks
