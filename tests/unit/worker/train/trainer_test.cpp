// Trains the model of tests/golden/data/small_d64 on four pairs of sentences.
#include "worker/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "worker/checkpoint/model_config.h"
#include "worker/checkpoint/output_ownership.h"

namespace tilewright::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(output_)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("checkpoint-")) names.push_back(name);
    }
    std::ranges::sort(names);
    return names;
  }
  // Overwrites the first elements of a tensor of the starting weights.
  void set_weights(const char* tensor, const std::vector<float>& values) {
    std::fstream file(model_ / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    std::uint64_t size = 0;
    file.read(reinterpret_cast<char*>(&size), sizeof size);
    std::string header(size, '\0');
    file.read(header.data(), static_cast<std::streamsize>(size));
    const std::int64_t begin = nlohmann::json::parse(header).at(tensor).at("data_offsets").at(0);
    file.seekp(static_cast<std::streamoff>(sizeof size + size) + begin);
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }
  // Throws Failure(kWeights) if an element is not finite.
  void check_weights(const fs::path& folder) const {
    Job job;
    job.settings.model_name_or_path = folder;
    job.model = checkpoint::read_model_config(model_);
    open_starting_weights(job);
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

// A weight decay of 100 at learning rate 100 multiplies the weights by -9999 in each step.
const std::vector<std::string> kDiverging = {"--learning_rate=100", "--weight_decay=100",
                                             "--max_steps=60", "--save_steps=1",
                                             "--save_total_limit=60"};

TEST_F(TrainerTest, KeepsTheCheckpointsBeforeItDiverges) {
  const std::string sentence = failure(kDiverging, ExitCode::kDiverged);
  const std::size_t steps = losses_.size();
  ASSERT_GT(steps, 1U);
  ASSERT_LT(steps, 60U);
  for (const double loss : losses_) EXPECT_TRUE(std::isfinite(loss)) << loss;
  EXPECT_THAT(sentence, AllOf(StartsWith(fmt::format("step {}: ", steps + 1)),
                              HasSubstr(" at learning rate 100, expected a finite number"),
                              HasSubstr("--max_grad_norm")));
  EXPECT_EQ(checkpoints().size(), steps);
  for (const std::string& name : checkpoints()) EXPECT_NO_THROW(check_weights(output_ / name));
}

TEST_F(TrainerTest, StopsAtALossThatIsNotFinite) {
  set_weights("classifier.bias", {-3e38f, 3e38f});
  EXPECT_THAT(failure({"--save_steps=1"}, ExitCode::kDiverged),
              StartsWith("step 1: the loss is infinite at learning rate 0.001, "));
  EXPECT_THAT(losses_, IsEmpty());
  EXPECT_THAT(checkpoints(), IsEmpty());
}

// Loss and gradient of the step are finite, but the weight decay makes a weight infinite.
TEST_F(TrainerTest, WritesNoInfiniteWeights) {
  set_weights("classifier.weight", {1e35f});
  EXPECT_THAT(failure(kDiverging, ExitCode::kDiverged),
              StartsWith("step 1: a weight is not finite at learning rate 100, "));
  EXPECT_THAT(checkpoints(), IsEmpty());
}

}  // namespace
}  // namespace tilewright::train
