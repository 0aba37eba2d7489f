// Trains the model of tests/golden/data/small_d64 on four pairs of sentences.
#include "worker/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "worker/checkpoint/output_ownership.h"

namespace tilewright::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    const fs::path golden = testing::source_dir() / "tests/golden";
    fs::create_directory(model_);
    for (const char* name : {"config.json", "model.safetensors"}) {
      fs::copy_file(golden / "data/small_d64" / name, model_ / name);
    }
    fs::copy_file(golden / "train/vocab.txt", model_ / "vocab.txt");
    std::ifstream file(golden / "train/label_smoothing.json");
    golden_ = nlohmann::json::parse(file).at("training");
    write_rows([](const nlohmann::json& row) { return row; });
  }

  template <typename Change>
  void write_rows(Change change) {
    std::ofstream rows(directory_.path() / "rows.json");
    for (const auto& row : golden_.at("rows")) rows << change(row).dump() << "\n";
  }

  // Trains three steps over all rows, without dropout.
  void train(const std::vector<std::string>& more) {
    std::vector<std::string> flags = {
        "--train_file=" + (directory_.path() / "rows.json").string(),
        "--validation_file=" + (directory_.path() / "rows.json").string(),
        "--model_name_or_path=" + model_.string(),
        "--output_dir=" + output_.string(),
        "--max_seq_length=32",
        "--per_device_train_batch_size=4",
        "--max_steps=3",
        "--lr_scheduler_type=constant",
        "--learning_rate=1e-3",
        "--hidden_dropout_prob=0",
        "--attention_probs_dropout_prob=0",
        "--classifier_dropout=0",
        "--bf16=false"};
    flags.insert(flags.end(), more.begin(), more.end());
    const TrainingArguments arguments = TrainingArguments::parse(flags).or_throw();
    const Job job = load_job(make_settings(arguments, {}), "uid-1");
    runtime::ThreadPool pool(1);
    Faults faults;
    const auto log = make_silent_logger();
    const auto trainer = make_trainer(job, runtime::Isa::kRef, pool, faults, *log);
    const auto mesh = collectives::Mesh::single_rank();
    trainer->begin_epoch(*mesh);
    trainer->restore(*mesh, {});
    trainer->set_output(checkpoint::acquire_output_dir(output_, {"uid-1", 1}));
    TrainerHooks hooks;
    hooks.on_step = [&](const StepReport& report, const Rates&) { losses_.push_back(report.loss); };
    trainer->train(*mesh, hooks);
    evaluation_ = trainer->evaluate(*mesh, job.evaluation_sets.front());
  }
  std::string failure(const std::vector<std::string>& more, ExitCode code) {
    try {
      train(more);
      ADD_FAILURE() << "no Failure was thrown";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), code) << failure.what();
      return failure.what();
    }
    return "";
  }

  testing::TemporaryDirectory directory_;
  fs::path model_ = directory_.path() / "model";
  fs::path output_ = directory_.path() / "out";
  nlohmann::json golden_;
  std::vector<double> losses_;
  EvaluationResult evaluation_;
};

// The losses are those of transformers' Trainer in float64; those of the later steps depend on the
// gradients of the earlier ones.
TEST_F(TrainerTest, SmoothsLabelsAsTheTrainerOfTransformers) {
  train({"--label_smoothing_factor=0.1"});
  const auto expected = golden_.at("losses").get<std::vector<double>>();
  ASSERT_EQ(losses_.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(losses_[i], expected[i], 1e-4 * expected[i]) << "step " << i + 1;
  }
  const double loss = golden_.at("eval_loss");
  EXPECT_NEAR(evaluation_.loss, loss, 1e-4 * loss);
}

TEST_F(TrainerTest, RefusesToSmoothTheLabelsOfARegression) {
  write_rows([](nlohmann::json row) {
    row["label"] = 0.5;
    return row;
  });
  EXPECT_THAT(failure({"--label_smoothing_factor=0.1"}, ExitCode::kUsage),
              AllOf(StartsWith("--label_smoothing_factor: found 0.1 with the regression "),
                    HasSubstr("expected 0")));
}

}  // namespace
}  // namespace tilewright::train
