#include "worker/train/results.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/paths.h"
#include "worker/tasks/registry.h"
#include "worker/train/log_history.h"

namespace tilewright::train {
namespace {

// From tests/golden/train/write_goldens.py.
TEST(MetricsBlock, HasTheLinesOfTrainerLogMetrics) {
  std::ifstream file(testing::source_dir() / "tests/golden/train/metrics.json");
  ASSERT_TRUE(file.is_open());
  const MetricsJson golden = MetricsJson::parse(file);
  int cases = 0;
  for (const auto& one : golden.at("cases")) {
    EXPECT_EQ(metrics_block(one.at("split").get<std::string>(), one.at("metrics")),
              one.at("lines").get<std::vector<std::string>>());
    ++cases;
  }
  EXPECT_EQ(cases, 5);
}

TEST(MetricsBlock, IsEmptyWithoutMetricsAndLeavesOutStrings) {
  EXPECT_TRUE(metrics_block("train", {}).empty());
  EXPECT_EQ(metrics_block("train", {{"train_instruction_set", "amx"}, {"epoch", 1.0}}),
            (std::vector<std::string>{"***** train metrics *****", "  epoch = 1.0"}));
}

// A trainer that has done nothing but has a state.
class FinishedTrainer : public Trainer {
 public:
  void touch_memory() override {}
  void begin_epoch(const collectives::Mesh&) override {}
  elastic::TrainingPosition position() const override { return {state_.global_step, 0}; }
  bool can_save() const override { return true; }
  void end_epoch() override {}
  bool trains_without_receivers(collectives::Mesh&, const elastic::StateAgreement&) const override {
    return false;
  }
  Restored restore(collectives::Mesh&, const RestoreFrom&) override { return {}; }
  SavedState save_state() const override { return {}; }
  void load_state(const SavedState&) override {}
  Outcome train(collectives::Mesh&, const TrainerHooks&) override { return Outcome::kComplete; }
  std::int64_t load_best_model(collectives::Mesh&) override { return 0; }
  EvaluationResult evaluate(collectives::Mesh&, const EvaluationSet&,
                            const std::function<void()>&) override {
    return {};
  }
  void set_output(checkpoint::OutputWriter) override {}
  void set_output_later(std::function<checkpoint::OutputWriter()>) override {}
  bool keeps_output() const override { return false; }
  bool release_empty_output() override { return false; }
  std::string write_model(const std::map<std::string, std::string>&) override { return ""; }
  void save_checkpoint(std::uint64_t) override {}
  void finish_checkpoint(Duration) override {}
  void finish_checkpoint_of_epoch() override {}
  std::int64_t step() const override { return state_.global_step; }
  std::int64_t last_checkpoint_step() const override { return -1; }
  std::int64_t failed_checkpoints() const override { return 0; }
  double checkpoint_wait_seconds() const override { return 0; }
  const checkpoint::TrainerState& state() const override { return state_; }
  const MemoryEstimate& memory_estimate() const override { return memory_; }
  MemoryDemand memory_demand() const override { return {}; }
  const RecoveryCounts& recovery_counts() const override { return counts_; }
  double train_seconds() const override { return 4; }
  double compute_seconds() const override { return 0; }
  std::vector<std::pair<std::string, std::string>> kernel_names() const override { return {}; }

  checkpoint::TrainerState state_;
  MemoryEstimate memory_;
  RecoveryCounts counts_;
};

class ResultsTest : public ::testing::Test {
 protected:
  ResultsTest() {
    job_.settings.do_train = true;
    trainer_.state_.global_step = 10;
    trainer_.state_.epoch = 2;
    trainer_.state_.total_flos = 1e12;
    trainer_.state_.examples_consumed = 80;
    trainer_.state_.log_history = {{{"step", 4}, {"epoch", 0.8}, {"loss", 1.0}},
                                   {{"step", 10}, {"epoch", 2.0}, {"loss", 0.5}}};
    evaluations_.push_back({.suffix = "",
                            .metrics = {{"accuracy", 0.75}},
                            .loss = 0.5,
                            .seconds = 2,
                            .examples = 8,
                            .steps = 2});
    evaluations_.push_back({.suffix = "_mm",
                            .metrics = {{"accuracy", 0.5}},
                            .loss = 0.25,
                            .seconds = 1,
                            .examples = 4,
                            .steps = 1});
  }
  Results make(const std::vector<EvaluationResult>& predictions = {}) const {
    return make_results(job_, trainer_, weights_step_, runtime::Isa::kAvx2, evaluations_,
                        predictions);
  }
  Job job_;
  FinishedTrainer trainer_;
  std::int64_t weights_step_ = 10;
  std::vector<EvaluationResult> evaluations_;
};

TEST_F(ResultsTest, HaveTheNamesOfTheTrainer) {
  const Results results = make();
  const auto file = [&](const char* name) { return nlohmann::json::parse(results.files.at(name)); };
  const nlohmann::json train = file("train_results.json");
  EXPECT_EQ(train.at("train_loss"), 0.7);  // (4 * 1.0 + 6 * 0.5) / 10
  EXPECT_EQ(train.at("train_runtime"), 4.0);
  EXPECT_EQ(train.at("train_samples_per_second"), 20.0);
  EXPECT_EQ(train.at("train_steps_per_second"), 2.5);
  const nlohmann::json expected = {{"epoch", 2.0},
                                   {"eval_accuracy", 0.75},
                                   {"eval_loss", 0.5},
                                   {"eval_runtime", 2.0},
                                   {"eval_samples", 8},
                                   {"eval_samples_per_second", 4.0},
                                   {"eval_steps_per_second", 1.0},
                                   {"epoch_mm", 2.0},
                                   {"eval_accuracy_mm", 0.5},
                                   {"eval_loss_mm", 0.25},
                                   {"eval_runtime_mm", 1.0},
                                   {"eval_samples_mm", 4},
                                   {"eval_samples_per_second_mm", 4.0},
                                   {"eval_steps_per_second_mm", 1.0}};
  EXPECT_EQ(file("eval_results.json"), expected);
  EXPECT_EQ(file("all_results.json").at("eval_accuracy_mm"), 0.5);
  EXPECT_EQ(file("all_results.json").at("train_loss"), 0.7);
}

TEST_F(ResultsTest, EndTheLogHistoryWithEvaluationAndSummary) {
  const auto history_of = [&] {
    return nlohmann::json::parse(make().files.at("trainer_state.json")).at("log_history");
  };
  nlohmann::json history = history_of();
  ASSERT_EQ(history.size(), 5u);
  EXPECT_EQ(history[2].at("eval_accuracy"), 0.75);
  EXPECT_EQ(history[2].at("step"), 10);
  const nlohmann::json summary = {{"epoch", 2.0},
                                  {"step", 10},
                                  {"total_flos", 1e12},
                                  {"train_loss", 0.7},
                                  {"train_runtime", 4.0},
                                  {"train_samples_per_second", 20.0},
                                  {"train_steps_per_second", 2.5}};
  EXPECT_EQ(history[4], summary);
  trainer_.state_.log_history.push_back(evaluation_entry(evaluations_[0], trainer_.state_));
  history = history_of();
  ASSERT_EQ(history.size(), 5u) << "the first set was evaluated after the last step already";
  EXPECT_EQ(history[2].at("eval_accuracy"), 0.75);
  EXPECT_EQ(history[3].at("eval_accuracy_mm"), 0.5);
  EXPECT_EQ(history[4], summary);
}

TEST_F(ResultsTest, EndTheLogHistoryWithTheEvaluationOfTheBestModel) {
  trainer_.state_.log_history.push_back(evaluation_entry(evaluations_[0], trainer_.state_));
  evaluations_[0].metrics.front().second = 0.875;
  weights_step_ = 4;
  const auto history =
      nlohmann::json::parse(make().files.at("trainer_state.json")).at("log_history");
  ASSERT_EQ(history.size(), 6u);
  EXPECT_EQ(history[2].at("eval_accuracy"), 0.75) << "of the last weights";
  EXPECT_EQ(history[3].at("eval_accuracy"), 0.875);
  EXPECT_EQ(history[3].at("step"), 10) << "the step of the evaluation, as with the Trainer";
  EXPECT_EQ(history[4].at("eval_accuracy_mm"), 0.5);
}

TEST_F(ResultsTest, HaveNoEpochWithoutATraining) {
  job_.settings.do_train = false;
  const Results results = make();
  for (const char* name : {"eval_results.json", "all_results.json"}) {
    const auto metrics = nlohmann::json::parse(results.files.at(name));
    EXPECT_TRUE(metrics.contains("eval_accuracy_mm")) << name;
    EXPECT_FALSE(metrics.contains("epoch") || metrics.contains("epoch_mm")) << name;
  }
}

TEST_F(ResultsTest, CountTheQuestionsOfSquadInIntegers) {
  evaluations_ = {{.metrics = {{"exact", 50.0}, {"total", 30.0}, {"HasAns_total", 15.0}},
                   .loss = 0.5,
                   .seconds = 1,
                   .examples = 30,
                   .steps = 1}};
  const auto metrics = nlohmann::json::parse(make().files.at("eval_results.json"));
  EXPECT_EQ(metrics.at("eval_total").dump(), "30");
  EXPECT_EQ(metrics.at("eval_HasAns_total").dump(), "15");
  EXPECT_EQ(metrics.at("eval_exact").dump(), "50.0");
}

// run_qa.py calls predict() without a prefix, and its test features have no positions.
TEST_F(ResultsTest, HaveTheNamesOfRunQaForPredictedAnswers) {
  job_.task = tasks::make_task({.name = "squad"});
  evaluations_.clear();
  const std::vector<EvaluationResult> predictions = {
      {.metrics = {{"exact_match", 50.0}, {"f1", 60.0}},
       .loss = 0.5,
       .seconds = 1,
       .examples = 2,
       .steps = 1}};
  const auto metrics = nlohmann::json::parse(make(predictions).files.at("predict_results.json"));
  EXPECT_EQ(metrics.at("test_exact_match"), 50.0);
  EXPECT_EQ(metrics.at("predict_samples"), 2);
  EXPECT_TRUE(metrics.contains("test_runtime"));
  EXPECT_FALSE(metrics.contains("test_loss") || metrics.contains("predict_f1"));
}

// As Trainer.save_metrics: all_results.json holds the metrics of all runs.
TEST(ResultFiles, KeepWhatOtherRunsHaveWritten) {
  const tilewright::testing::TemporaryDirectory folder;
  const std::filesystem::path directory = folder.path() / "a/b";
  write_result_files(directory, {{"eval_results.json", "{}"},
                                 {"all_results.json", R"({"eval_f1": 0.5, "eval_loss": 2})"}});
  std::ofstream(directory / "model.safetensors") << "weights";
  write_result_files(directory, {{"predict_results.json", "{}"},
                                 {"all_results.json", R"({"eval_loss": 1, "predict_f1": 0.25})"}});
  EXPECT_EQ(nlohmann::json::parse(testing::read_text(directory / "all_results.json")),
            nlohmann::json::parse(R"({"eval_f1": 0.5, "eval_loss": 1, "predict_f1": 0.25})"));
  for (const char* name : {"eval_results.json", "predict_results.json", "model.safetensors"}) {
    EXPECT_TRUE(std::filesystem::exists(directory / name)) << name;
  }
  std::ofstream(directory / "all_results.json") << "{broken";
  write_result_files(directory, {{"all_results.json", R"({"eval_loss": 3})"}});
  EXPECT_EQ(testing::read_text(directory / "all_results.json"), "{\n    \"eval_loss\": 3\n}\n");
  std::ofstream(folder.path() / "file") << "";
  EXPECT_THROW(write_result_files(folder.path() / "file", {}), Failure);
}

TEST_F(ResultsTest, HavePredictionsWithoutLabels) {
  job_.settings.do_train = false;
  evaluations_.clear();
  EvaluationResult prediction;
  prediction.seconds = 2;
  prediction.examples = 8;
  prediction.steps = 1;
  prediction.prediction_files["predict_results_mrpc.txt"] = "index\tprediction\n";
  const Results results = make({prediction});
  EXPECT_EQ(results.files.at("predict_results_mrpc.txt"), "index\tprediction\n");
  EXPECT_FALSE(results.files.contains("trainer_state.json"));
  const auto metrics = nlohmann::json::parse(results.files.at("predict_results.json"));
  EXPECT_EQ(metrics.at("predict_samples"), 8);
  EXPECT_FALSE(metrics.contains("predict_loss"));
  EXPECT_FALSE(metrics.contains("epoch"));
}

}  // namespace
}  // namespace tilewright::train
