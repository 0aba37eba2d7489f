// Tests what a worker restores from, and that a failed checkpoint does not end the training.
#include "worker/train/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/paths.h"
#include "worker/checkpoint/output_ownership.h"
#include "worker/checkpoint/safetensors_writer.h"

namespace tilewright::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
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
  std::shared_ptr<Logger> log_ = make_silent_logger();
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

}  // namespace
}  // namespace tilewright::train
