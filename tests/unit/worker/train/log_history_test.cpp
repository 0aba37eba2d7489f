#include "worker/train/log_history.h"

#include <gtest/gtest.h>

namespace tilewright::train {
namespace {

using Metrics = std::map<std::string, double>;

EvaluationResult evaluation_of(const std::string& suffix, double accuracy) {
  return {.suffix = suffix,
          .metrics = {{"accuracy", accuracy}},
          .loss = 0.5,
          .seconds = 2,
          .examples = 8,
          .steps = 2};
}

checkpoint::TrainerState state_at(std::int64_t step) {
  checkpoint::TrainerState state;
  state.global_step = step;
  state.epoch = 1.5;
  return state;
}

TEST(EvaluationEntry, HasTheNamesOfTheTrainer) {
  const nlohmann::json expected = {{"epoch", 1.5},
                                   {"eval_accuracy_mm", 0.75},
                                   {"eval_loss_mm", 0.5},
                                   {"eval_runtime_mm", 2.0},
                                   {"eval_samples_per_second_mm", 4.0},
                                   {"eval_steps_per_second_mm", 1.0},
                                   {"step", 10}};
  EXPECT_EQ(evaluation_entry(evaluation_of("_mm", 0.75), state_at(10)), expected);
}

TEST(LastEvaluationMetrics, AreThoseOfAllSetsWithoutLossAndSpeed) {
  checkpoint::TrainerState state = state_at(5);
  EXPECT_EQ(last_evaluation_metrics(state), Metrics());
  const auto evaluate = [&](double matched, double mismatched) {
    state.log_history.push_back(evaluation_entry(evaluation_of("", matched), state));
    state.log_history.push_back(evaluation_entry(evaluation_of("_mm", mismatched), state));
  };
  evaluate(0.25, 0.125);
  state.global_step = 10;
  evaluate(0.75, 0.5);
  state.log_history.push_back({{"loss", 1.0}, {"step", 12}});
  EXPECT_EQ(last_evaluation_metrics(state),
            (Metrics{{"eval_accuracy", 0.75}, {"eval_accuracy_mm", 0.5}}));
}

}  // namespace
}  // namespace tilewright::train
