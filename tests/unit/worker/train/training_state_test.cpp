// Tests what a worker restores from, and that a failed checkpoint does not end the training.
#include "worker/train/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "tests/support/paths.h"
#include "worker/checkpoint/output_ownership.h"
#include "worker/checkpoint/safetensors_writer.h"

namespace tilewright::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

nn::EncoderConfig small_config() {
  nn::EncoderConfig config;
  config.vocab_size = 8;
  config.hidden_size = 16;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 1;
  config.intermediate_size = 16;
  config.max_position_embeddings = 8;
  config.num_labels = 2;
  return config;
}

class TrainingStateTest : public ::testing::Test {
 protected:
  TrainingStateTest() {
    fs::create_directory(model_dir_);
    write_weights(1);
    std::ofstream(model_dir_ / "vocab.txt") << "[PAD]\n";
    job_.settings.do_train = true;
    job_.settings.model_name_or_path = model_dir_;
    job_.settings.output_dir = output_;
    job_.settings.save_strategy = "steps";
    job_.settings.save_steps = 4;
    job_.settings.logging_steps = 100;
    job_.uid = "uid-1";
    job_.schedule.total_steps = 100;
    job_.schedule.steps_per_epoch = 10;
    job_.model.encoder = small_config();
    job_.model.json = "{}";
    open_starting_weights(job_);
    nn::initialise_tensor(model_.layout().tensors.front(), 1, 0.02f, model_.parameters().data());
  }

  // Replaces the model file by one whose values are all `value`, as a download tool does, or
  // overwrites it in place, as cp does.
  void write_weights(float value, bool in_place = false) {
    const nn::ParameterLayout layout(small_config());
    const std::vector<float> values(static_cast<std::size_t>(layout.count), value);
    std::vector<checkpoint::NamedTensor> tensors;
    for (const nn::Tensor& tensor : layout.tensors) {
      tensors.push_back(checkpoint::float_tensor(tensor.name, tensor.shape, values.data()));
    }
    const fs::path fresh = model_dir_ / "new.safetensors";
    checkpoint::write_safetensors(fresh, std::move(tensors));
    if (!in_place) return fs::rename(fresh, file());
    fs::copy_file(fresh, file(), fs::copy_options::overwrite_existing);
    fs::remove(fresh);
  }
  fs::path file() const { return model_dir_ / "model.safetensors"; }

  void restore(const RestoreFrom& from = {}) {
    state_.restore(*collectives::Mesh::single_rank(), from);
  }
  void expect_failure(const std::function<void()>& call, ExitCode code,
                      const ::testing::Matcher<std::string>& message) {
    try {
      call();
      ADD_FAILURE() << "no Failure was thrown";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), code) << failure.what();
      EXPECT_THAT(std::string(failure.what()), message);
    }
  }
  void own_output(std::uint64_t epoch) {
    state_.set_output(checkpoint::acquire_output_dir(output_, {"uid-1", epoch}));
  }
  void train_to(std::int64_t step) {
    while (state_.step() < step) state_.add({.step = state_.step() + 1, .total_steps = 100});
  }
  std::vector<float> parameters() const {
    const auto values = model_.parameters();
    return {values.begin(), values.end()};
  }

  testing::TemporaryDirectory directory_;
  fs::path model_dir_ = directory_.path() / "model";
  fs::path output_ = directory_.path() / "output";
  Job job_;
  runtime::ThreadPool pool_{1};
  kernels::Ops<float> ops_ = kernels::make_ops<float>(runtime::Isa::kRef);
  kernels::ParameterOps parameter_ops_ = kernels::make_parameter_ops(runtime::Isa::kRef);
  nn::Context<float> context_{pool_, ops_, parameter_ops_};
  mutable nn::Model<float> model_{small_config(), context_};
  nn::Optimizer<float> optimizer_{model_, context_, {}};
  Faults faults_;
  std::ostringstream log_text_;
  std::shared_ptr<Logger> log_ =
      std::make_shared<Logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_text_));
  TrainingState<float> state_{job_, model_, optimizer_, faults_, *log_};
};

// Epochs without a checkpoint start from the weights that the first one started from.
TEST_F(TrainingStateTest, KeepsTheStartingWeightsOfAFileThatIsReplaced) {
  restore();
  const std::vector<float> first = parameters();
  write_weights(2);
  restore();
  EXPECT_EQ(parameters(), first);
}

TEST_F(TrainingStateTest, RefusesStartingWeightsThatAreOverwrittenInPlace) {
  restore();
  write_weights(2, true);
  expect_failure([&] { restore(); }, ExitCode::kWeights,
                 AllOf(HasSubstr(file().string()), HasSubstr("has changed since")));
  fs::resize_file(file(), 100);
  expect_failure([&] { restore(); }, ExitCode::kWeights, HasSubstr("has been truncated"));
}

TEST_F(TrainingStateTest, LogsOnceWhatTheStartingWeightsLackAndWhatIsNotUsed) {
  const nn::ParameterLayout layout(small_config());
  const std::vector<float> values(static_cast<std::size_t>(layout.count), 1);
  std::vector<checkpoint::NamedTensor> tensors = {
      checkpoint::float_tensor("cls.predictions.bias", {8}, values.data()),
      checkpoint::float_tensor("cls.seq_relationship.bias", {2}, values.data())};
  for (const nn::Tensor& tensor : layout.tensors) {
    if (tensor.name.starts_with("classifier.")) continue;
    tensors.push_back(checkpoint::float_tensor(tensor.name, tensor.shape, values.data()));
  }
  fs::remove(file());
  checkpoint::write_safetensors(file(), std::move(tensors));
  job_.settings.init_seed = 7;
  open_starting_weights(job_);
  restore();
  const std::string log = log_text_.str();
  EXPECT_THAT(log, HasSubstr("not in the model's weights, initialised at random: "
                             "classifier.weight, classifier.bias (seed 7)"));
  EXPECT_THAT(log, HasSubstr("in the model's weights, not used: cls.predictions.bias, "
                             "cls.seq_relationship.bias (2 in all)"));
  EXPECT_NE(parameters().front(), 1) << "the head is the first tensor";
  EXPECT_EQ(parameters().back(), 1);
  restore();
  EXPECT_EQ(log_text_.str(), log);
}

TEST_F(TrainingStateTest, RefusesStartingWeightsThatAreNotFinite) {
  write_weights(std::numeric_limits<float>::quiet_NaN());
  expect_failure([&] { open_starting_weights(job_); }, ExitCode::kWeights,
                 AllOf(HasSubstr(file().string() + ": tensor \"classifier.weight\": element 0 "
                                                   "is NaN, expected a finite number")));
}

TEST_F(TrainingStateTest, RefusesToFallBehindTheJobsLastCheckpoint) {
  expect_failure([&] { restore({.resume = false, .required_step = 8}); },
                 ExitCode::kCheckpointMissing,
                 AllOf(HasSubstr(output_.string()),
                       HasSubstr("found no valid checkpoint, expected checkpoint-8")));
  restore();
  own_output(1);
  train_to(4);
  state_.save_checkpoint(1);
  expect_failure([&] { restore({.resume = true, .required_step = 8}); },
                 ExitCode::kCheckpointMissing,
                 HasSubstr("found checkpoint-4, expected checkpoint-8"));
  restore({.resume = true, .required_step = 4});
  EXPECT_EQ(state_.step(), 4);
  restore({.resume = true, .required_step = 2});
  EXPECT_EQ(state_.step(), 4) << "a later one than the coordinator knows";
}

TEST_F(TrainingStateTest, GoesOnWithoutACheckpointThatCannotBeWritten) {
  restore();
  own_output(1);
  train_to(4);
  const fs::path away = directory_.path() / "away";
  fs::rename(output_, away);  // as if the volume were gone
  EXPECT_TRUE(state_.save_due(monotonic_now()));
  state_.save_checkpoint(1);
  EXPECT_EQ(state_.failed_checkpoints(), 1);
  EXPECT_EQ(state_.last_checkpoint_step(), -1);
  EXPECT_EQ(state_.step(), 4);

  fs::rename(away, output_);
  train_to(5);
  EXPECT_FALSE(state_.save_due(monotonic_now()));
  EXPECT_TRUE(state_.save_due(monotonic_now() + CheckpointRetry::kDelay));
  state_.save_checkpoint(1);
  EXPECT_EQ(state_.failed_checkpoints(), 1);
  EXPECT_EQ(state_.last_checkpoint_step(), 5);
  EXPECT_FALSE(state_.save_due(monotonic_now() + CheckpointRetry::kDelay));
  EXPECT_EQ(state_.trainer_state().log_history.size(), 2u)
      << "the losses since the last entry, in both checkpoints";
}

TEST_F(TrainingStateTest, DoesNotGoOnIfANewerProcessWrites) {
  restore();
  own_output(1);
  train_to(4);
  checkpoint::acquire_output_dir(output_, {"uid-1", 2});
  expect_failure([&] { state_.save_checkpoint(1); }, ExitCode::kSuperseded,
                 HasSubstr("a newer process of this job (epoch 2)"));
}

// Trains to a step and evaluates there.
class BestModelTest : public TrainingStateTest {
 protected:
  BestModelTest() {
    job_.settings.eval_strategy = "steps";
    job_.settings.eval_steps = 2;
    job_.settings.load_best_model_at_end = true;
    job_.settings.metric_for_best_model = "eval_accuracy";
    job_.settings.greater_is_better = true;
    job_.settings.save_total_limit = 1;
    restore();
    own_output(1);
  }
  // As Trainer::train() does. The weights are all `accuracy` then.
  void evaluate_at(std::int64_t step, double accuracy, double loss = 1) {
    train_to(step);
    std::ranges::fill(model_.parameters(), static_cast<float>(accuracy));
    state_.add_evaluation({.metrics = {{"accuracy", accuracy}},
                           .loss = loss,
                           .seconds = 2,
                           .examples = 10,
                           .steps = 5});
    if (state_.save_due(monotonic_now())) state_.save_checkpoint(1);
  }
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (const fs::path& path : checkpoint::list_checkpoints(output_)) {
      names.push_back(path.filename());
    }
    return names;
  }
  std::int64_t load_best() { return state_.load_best_model(*collectives::Mesh::single_rank()); }
};

TEST_F(BestModelTest, IsKeptAndLoadedAtTheEnd) {
  evaluate_at(2, 0.5);  // not a save step
  EXPECT_THAT(checkpoints(), ElementsAre("checkpoint-2"));
  evaluate_at(4, 0.75);
  evaluate_at(6, 0.75);  // not better
  evaluate_at(8, 0.25);
  EXPECT_THAT(checkpoints(), ElementsAre("checkpoint-8", "checkpoint-4"));
  EXPECT_EQ(state_.trainer_state().best_metric, 0.75);
  EXPECT_EQ(state_.trainer_state().best_global_step, 4);
  EXPECT_EQ(state_.trainer_state().best_model_checkpoint, (output_ / "checkpoint-4").string());
  EXPECT_EQ(load_best(), 4);
  EXPECT_THAT(parameters(), Each(0.75f));
}

TEST_F(BestModelTest, SurvivesARestart) {
  evaluate_at(2, 0.75);
  evaluate_at(4, 0.5);
  TrainingState<float> fresh(job_, model_, optimizer_, faults_, *log_);
  std::ranges::fill(model_.parameters(), 0.0f);
  fresh.restore(*collectives::Mesh::single_rank(), {.resume = true, .required_step = 4});
  EXPECT_THAT(parameters(), Each(0.5f));
  EXPECT_EQ(fresh.trainer_state().best_global_step, 2);
  EXPECT_EQ(fresh.trainer_state().best_metric, 0.75);
  EXPECT_EQ(fresh.load_best_model(*collectives::Mesh::single_rank()), 2);
  EXPECT_THAT(parameters(), Each(0.75f));
}

TEST_F(BestModelTest, IsTheLastIfItsEvaluationIsTheBest) {
  evaluate_at(4, 0.5);
  evaluate_at(100, 0.75);
  EXPECT_EQ(load_best(), 100);
  EXPECT_THAT(parameters(), Each(0.75f));
  EXPECT_THAT(checkpoints(), ElementsAre("checkpoint-4"));
}

TEST_F(BestModelTest, IsAnErrorIfItsCheckpointIsMissing) {
  evaluate_at(4, 0.5);
  evaluate_at(8, 0.25);
  fs::remove_all(output_ / "checkpoint-4");
  expect_failure([&] { load_best(); }, ExitCode::kCheckpointMissing,
                 HasSubstr("the best model, of step 4, cannot be loaded: "));
}

TEST_F(BestModelTest, IsNeverOneWithoutANumber) {
  evaluate_at(2, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(state_.trainer_state().best_metric, std::nullopt);
  EXPECT_EQ(load_best(), 2);
}

TEST_F(BestModelTest, NamesTheMetricsIfTheWantedOneIsMissing) {
  job_.settings.metric_for_best_model = "eval_f1";
  expect_failure([&] { evaluate_at(2, 0.5); }, ExitCode::kUsage,
                 ::testing::StartsWith("--metric_for_best_model: found eval_f1, expected one of "
                                       "eval_accuracy, eval_loss, eval_runtime"));
}

TEST_F(BestModelTest, WithSaveStrategyBestOnlyNewBestsAreSaved) {
  job_.settings.load_best_model_at_end = false;
  job_.settings.save_strategy = "best";
  job_.settings.save_total_limit = 0;
  job_.settings.metric_for_best_model = "eval_loss";
  job_.settings.greater_is_better = false;
  evaluate_at(2, 0.5, 0.9);
  evaluate_at(4, 0.5, 0.9);
  evaluate_at(6, 0.5, 0.8);
  EXPECT_THAT(checkpoints(), ElementsAre("checkpoint-6", "checkpoint-2"));
}

// As in the trainer_state.json of transformers.
TEST_F(BestModelTest, EvaluationsAreInTheLogHistory) {
  job_.settings.logging_steps = 2;
  evaluate_at(2, 0.5, 0.9);
  const nlohmann::json history = state_.trainer_state().log_history;
  ASSERT_EQ(history.size(), 2u);
  EXPECT_TRUE(history[0].contains("loss"));
  const nlohmann::json expected = {{"epoch", 0.0},
                                   {"step", 2},
                                   {"eval_accuracy", 0.5},
                                   {"eval_loss", 0.9},
                                   {"eval_runtime", 2.0},
                                   {"eval_samples_per_second", 5.0},
                                   {"eval_steps_per_second", 2.5}};
  EXPECT_EQ(history[1], expected);
}

}  // namespace
}  // namespace tilewright::train
