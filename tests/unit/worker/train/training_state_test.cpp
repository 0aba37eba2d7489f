// Tests what a worker restores from, and that a failed checkpoint does not end the training.
#include "worker/train/training_state.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "tests/support/limited_memory.h"
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
    job_.schedule.save_steps = 4;
    job_.schedule.logging_steps = 100;
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
    state_.output().set(checkpoint::acquire_output_dir(output_, {"uid-1", epoch}));
  }
  void train_to(std::int64_t step) {
    TrainingProgress& progress = state_.progress();
    while (progress.step() < step) progress.add({.step = progress.step() + 1, .total_steps = 100});
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
  TrainingState<float> state_{job_, model_, optimizer_, parameter_ops_, faults_, *log_};
};

// Epochs without a checkpoint start from the weights that the first one started from.
TEST_F(TrainingStateTest, KeepsTheStartingWeightsOfAFileThatIsReplaced) {
  restore();
  const std::vector<float> first = parameters();
  write_weights(2);
  restore();
  EXPECT_EQ(parameters(), first);
}

// The other workers do not wait while the system gives them again.
TEST_F(TrainingStateTest, KeepsTheTouchedPagesOfTheMomentsWithStartingWeights) {
  for (const std::span<std::byte> moments : optimizer_.memory()) runtime::touch_pages(moments);
  restore();
  for (const std::span<std::byte> moments : optimizer_.memory()) {
    std::vector<unsigned char> pages(moments.size() / static_cast<std::size_t>(getpagesize()) + 1);
    ASSERT_EQ(mincore(moments.data(), moments.size(), pages.data()), 0);
    EXPECT_EQ(pages.front() & 1, 1);
  }
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

TEST_F(TrainingStateTest, RefusesStartingWeightsWithoutTheDigestThatTheyState) {
  const float value = 1;
  fs::remove(file());
  checkpoint::write_safetensors(file(),
                                {checkpoint::float_tensor("classifier.weight", {1}, &value)},
                                {{checkpoint::kTensorsDigest, "of other weights"}});
  expect_failure([&] { open_starting_weights(job_); }, ExitCode::kWeights,
                 AllOf(HasSubstr(file().string() + ": is corrupt"),
                       HasSubstr("expected \"of other weights\"")));
}

TEST_F(TrainingStateTest, RefusesToFallBehindTheJobsLastCheckpoint) {
  expect_failure([&] { restore({.resume = false, .required_step = 8}); },
                 ExitCode::kCheckpointMissing,
                 AllOf(HasSubstr(output_.string()),
                       HasSubstr("found no valid checkpoint, expected checkpoint-8")));
  restore();
  own_output(1);
  train_to(4);
  state_.output().save_checkpoint(1);
  expect_failure([&] { restore({.resume = true, .required_step = 8}); },
                 ExitCode::kCheckpointMissing,
                 HasSubstr("found checkpoint-4, expected checkpoint-8"));
  restore({.resume = true, .required_step = 4});
  EXPECT_EQ(state_.progress().step(), 4);
  restore({.resume = true, .required_step = 2});
  EXPECT_EQ(state_.progress().step(), 4) << "a later one than the coordinator knows";
}

TEST_F(TrainingStateTest, WarnsIfItResumesFromAnotherCheckpointThanTheNamedOne) {
  restore();
  own_output(1);
  train_to(4);
  state_.output().save_checkpoint(1);
  const fs::path own = output_ / "checkpoint-4";
  const fs::path other = directory_.path() / "other/checkpoint-2";
  fs::create_directories(other.parent_path());
  fs::copy(own, other, fs::copy_options::recursive);
  const auto warning = [&](const fs::path& named) {
    log_text_.str("");
    job_.settings.resume_from_checkpoint = named;
    restore({.resume = true});
    EXPECT_EQ(state_.progress().step(), 4);
    const std::string log = log_text_.str();
    const std::size_t at = log.find("--resume_from_checkpoint");
    return at == std::string::npos ? "" : log.substr(at, log.find('\n', at) - at);
  };
  EXPECT_EQ(warning(other), "--resume_from_checkpoint " + other.string() +
                                ": not used: " + output_.string() + " has checkpoints of this job");
  EXPECT_EQ(warning(own), "");
  EXPECT_EQ(warning(own / ""), "");
  // Deleted or not readable any more since an earlier process of this job began from it.
  for (const fs::path& missing : {output_ / "checkpoint-1", directory_.path() / "gone",
                                  directory_.path() / std::string(300, 'n')}) {
    EXPECT_EQ(warning(missing), "--resume_from_checkpoint " + missing.string() + ": not found: " +
                                    output_.string() + " has checkpoints of this job");
  }
  log_text_.str("");
  job_.settings.resume_from_checkpoint = other;
  restore({.resume = false});
  EXPECT_THAT(log_text_.str(), AllOf(HasSubstr("resuming from " + other.string()),
                                     ::testing::Not(HasSubstr("not used"))));
}

TEST_F(TrainingStateTest, GoesOnWithoutACheckpointThatCannotBeWritten) {
  restore();
  own_output(1);
  train_to(4);
  const fs::path away = directory_.path() / "away";
  fs::rename(output_, away);  // as if the volume were gone
  EXPECT_TRUE(state_.output().save_due(monotonic_now()));
  state_.output().save_checkpoint(1);
  EXPECT_EQ(state_.output().failed_checkpoints(), 1);
  EXPECT_EQ(state_.output().last_checkpoint_step(), -1);
  EXPECT_EQ(state_.progress().step(), 4);

  fs::rename(away, output_);
  train_to(5);
  EXPECT_FALSE(state_.output().save_due(monotonic_now()));
  EXPECT_TRUE(state_.output().save_due(monotonic_now() + CheckpointRetry::kDelay));
  state_.output().save_checkpoint(1);
  EXPECT_EQ(state_.output().failed_checkpoints(), 1);
  EXPECT_EQ(state_.output().last_checkpoint_step(), 5);
  EXPECT_FALSE(state_.output().save_due(monotonic_now() + CheckpointRetry::kDelay));
  EXPECT_EQ(state_.progress().trainer_state().log_history.size(), 2u)
      << "the losses since the last entry, in both checkpoints";
}

TEST_F(TrainingStateTest, DoesNotGoOnIfANewerProcessWrites) {
  restore();
  own_output(1);
  train_to(4);
  checkpoint::acquire_output_dir(output_, {"uid-1", 2});
  expect_failure([&] { state_.output().save_checkpoint(1); }, ExitCode::kSuperseded,
                 HasSubstr("a newer process of this job (epoch 2)"));
}

// Checkpoints in the background, whose thread waits at a named pipe before it writes one.
class BackgroundCheckpointTest : public TrainingStateTest {
 protected:
  BackgroundCheckpointTest() {
    hold();
    faults_ = Faults::parse("checkpoint.write,epoch=0,hold=" + pipe().string()).or_throw();
    restore();
    own_output(1);
    train_to(3);
    set_state(3);
    EXPECT_GT(state_.output().reserve_checkpoint_copy(), 0u);
    train_to(4);
    set_state(4);
  }
  // No test that fails leaves a waiting thread.
  ~BackgroundCheckpointTest() override {
    const int writer = open(pipe().c_str(), O_RDWR | O_CLOEXEC);
    fs::remove(pipe());
    close(writer);
    state_.output().finish_checkpoint(kCheckpointTimeout);
  }
  fs::path pipe() const { return directory_.path() / "hold"; }
  // From now on the thread waits.
  void hold() const {
    fs::remove(pipe());
    EXPECT_EQ(mkfifo(pipe().c_str(), 0600), 0);
  }
  // Waits for the thread and lets it continue; later it waits for the next call if `again`.
  void release(bool again = false) const {
    const std::ofstream writer(pipe());
    fs::remove(pipe());
    if (again) hold();
  }
  // All weights and moments.
  void set_state(float value) {
    std::ranges::fill(model_.parameters(), value);
    std::ranges::fill(optimizer_.exp_avg(), -value);
    std::ranges::fill(optimizer_.exp_avg_sq(), 2 * value);
  }
  void expect_state(float value) {
    const auto all = [](std::span<const float> values, float wanted) {
      return std::ranges::all_of(values, [&](float x) { return x == wanted; });
    };
    EXPECT_TRUE(all(model_.parameters(), value));
    EXPECT_TRUE(all(optimizer_.exp_avg(), -value));
    EXPECT_TRUE(all(optimizer_.exp_avg_sq(), 2 * value));
  }
};

TEST_F(BackgroundCheckpointTest, HoldsTheStateOfItsStepAndCountsOnlyWhenItIsCommitted) {
  EXPECT_TRUE(state_.output().save_due(monotonic_now()));
  state_.output().start_checkpoint(1);
  EXPECT_FALSE(state_.output().save_due(monotonic_now()));
  train_to(6);
  set_state(6);
  state_.output().poll_checkpoint();
  EXPECT_EQ(state_.output().last_checkpoint_step(), -1);
  EXPECT_THAT(checkpoint::list_checkpoints(output_), ::testing::IsEmpty());
  EXPECT_EQ(log_text_.str().find("wrote"), std::string::npos);
  EXPECT_FALSE(state_.output().save_due(monotonic_now() + CheckpointRetry::kDelay));

  release();
  state_.output().finish_checkpoint(kCheckpointTimeout);
  EXPECT_EQ(state_.output().last_checkpoint_step(), 4);
  EXPECT_THAT(log_text_.str(), HasSubstr("wrote " + (output_ / "checkpoint-4").string() + " in "));
  expect_state(6);
  restore({.resume = true, .required_step = 4});
  EXPECT_EQ(state_.progress().step(), 4);
  expect_state(4);
}

TEST_F(BackgroundCheckpointTest, TheNextOneWaitsForIt) {
  state_.output().start_checkpoint(1);
  std::thread later([&] { release(true); });
  train_to(8);
  set_state(8);
  state_.output().start_checkpoint(1);
  later.join();
  EXPECT_EQ(state_.output().last_checkpoint_step(), 4);
  EXPECT_GT(state_.output().checkpoint_wait_seconds(), 0);
  release();
  state_.output().finish_checkpoint(kCheckpointTimeout);
  EXPECT_EQ(state_.output().last_checkpoint_step(), 8);
  EXPECT_EQ(checkpoint::list_checkpoints(output_).size(), 2u);
  EXPECT_EQ(state_.output().failed_checkpoints(), 0);
}

TEST_F(BackgroundCheckpointTest, IsCompleteBeforeTheOutputIsWritten) {
  state_.output().start_checkpoint(1);
  std::thread later([&] { release(); });
  state_.output().write_model({});
  later.join();
  EXPECT_EQ(state_.output().last_checkpoint_step(), 4);
  EXPECT_TRUE(fs::exists(output_ / "checkpoint-4/checksums.json"));
  EXPECT_TRUE(fs::exists(output_ / "model.safetensors"));
}

TEST_F(BackgroundCheckpointTest, IsTriedAgainIfItCannotBeWritten) {
  state_.output().start_checkpoint(1);
  const fs::path away = directory_.path() / "away";
  fs::rename(output_, away);  // as if the volume were gone
  release();
  state_.output().finish_checkpoint(kCheckpointTimeout);
  EXPECT_EQ(state_.output().failed_checkpoints(), 1);
  EXPECT_EQ(state_.output().last_checkpoint_step(), -1);
  EXPECT_THAT(log_text_.str(), HasSubstr("checkpoint of step 4 not written: "));
  fs::rename(away, output_);
  train_to(5);
  EXPECT_FALSE(state_.output().save_due(monotonic_now()));
  EXPECT_TRUE(state_.output().save_due(monotonic_now() + CheckpointRetry::kDelay));
}

TEST_F(BackgroundCheckpointTest, EndsTheTrainingIfANewerProcessWrites) {
  state_.output().start_checkpoint(1);
  checkpoint::acquire_output_dir(output_, {"uid-1", 2});
  release();
  expect_failure(
      [&] {
        for (;;) state_.output().poll_checkpoint();
      },
      ExitCode::kSuperseded, HasSubstr("a newer process of this job (epoch 2)"));
  EXPECT_EQ(state_.output().last_checkpoint_step(), -1);
  EXPECT_THAT(checkpoint::list_checkpoints(output_), ::testing::IsEmpty());
}

// A process with a lower index is rank 0 in the next membership epoch.
TEST_F(BackgroundCheckpointTest, IsGivenUpIfAnotherProcessIsRank0InTheNextEpoch) {
  state_.output().start_checkpoint(1);
  state_.output().give_up();
  checkpoint::acquire_output_dir(output_, {"uid-1", 2});
  release();
  while (log_text_.str().find("checkpoint of step 4 not written: ") == std::string::npos) {
    state_.output().poll_checkpoint();
  }
  EXPECT_EQ(state_.output().last_checkpoint_step(), -1);
  EXPECT_THAT(checkpoint::list_checkpoints(output_), ::testing::IsEmpty());
}

// The process owns the output in the next membership epoch, before the checkpoint is complete.
TEST_F(BackgroundCheckpointTest, IsWrittenAgainIfItsEpochEndsFirst) {
  state_.output().start_checkpoint(1);
  own_output(2);
  release(true);
  state_.output().finish_checkpoint(kCheckpointTimeout);
  EXPECT_EQ(state_.output().last_checkpoint_step(), -1);
  train_to(5);
  EXPECT_TRUE(state_.output().save_due(monotonic_now()));
  state_.output().start_checkpoint(2);
  release();
  state_.output().finish_checkpoint(kCheckpointTimeout);
  EXPECT_EQ(state_.output().last_checkpoint_step(), 5);
}

// All workers know at which step the lost rank 0 had to write.
TEST_F(BackgroundCheckpointTest, IsWrittenByTheNextRank0IfTheFirstIsLost) {
  train_to(6);
  state_.load(state_.save());
  EXPECT_TRUE(state_.output().save_due(monotonic_now()));
  state_.output().start_checkpoint(1);
  release();
  state_.output().finish_checkpoint(kCheckpointTimeout);
  EXPECT_EQ(state_.output().last_checkpoint_step(), 6);
}

TEST_F(TrainingStateTest, ReservesNoCopyIfNoCheckpointFollows) {
  job_.schedule.total_steps = 8;
  for (const std::int64_t step : {4, 5}) {  // the last checkpoint is due at step 4
    TrainingState<float> state(job_, model_, optimizer_, parameter_ops_, faults_, *log_);
    state.restore(*collectives::Mesh::single_rank(), {});
    state.output().set(
        checkpoint::acquire_output_dir(output_, {"uid-1", static_cast<std::uint64_t>(step)}));
    while (state.progress().step() < step)
      state.progress().add({.step = state.progress().step() + 1, .total_steps = 8});
    EXPECT_EQ(state.output().reserve_checkpoint_copy() > 0, step == 4) << step;
  }
}

TEST_F(TrainingStateTest, WritesCheckpointsBetweenStepsIfNoMemoryIsLeftForACopy) {
  restore();
  own_output(1);
  {
    const testing::LimitedMemory limited;
    EXPECT_EQ(state_.output().reserve_checkpoint_copy(), 0u);
  }
  EXPECT_THAT(log_text_.str(), HasSubstr("checkpoints are written between steps: "));
  train_to(4);
  state_.output().start_checkpoint(1);
  EXPECT_EQ(state_.output().last_checkpoint_step(), 4);
  EXPECT_TRUE(fs::exists(output_ / "checkpoint-4"));
}

// Trains to a step and evaluates there.
class BestModelTest : public TrainingStateTest {
 protected:
  BestModelTest() {
    job_.settings.eval_strategy = "steps";
    job_.schedule.eval_steps = 2;
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
    state_.progress().add_evaluation({.metrics = {{"accuracy", accuracy}},
                                      .loss = loss,
                                      .seconds = 2,
                                      .examples = 10,
                                      .steps = 5});
    if (state_.output().save_due(monotonic_now())) state_.output().save_checkpoint(1);
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
  EXPECT_EQ(state_.progress().trainer_state().best_metric, 0.75);
  EXPECT_EQ(state_.progress().trainer_state().best_global_step, 4);
  EXPECT_EQ(state_.progress().trainer_state().best_model_checkpoint,
            (output_ / "checkpoint-4").string());
  EXPECT_EQ(load_best(), 4);
  EXPECT_THAT(parameters(), Each(0.75f));
}

TEST_F(BestModelTest, SurvivesARestart) {
  evaluate_at(2, 0.75);
  evaluate_at(4, 0.5);
  TrainingState<float> fresh(job_, model_, optimizer_, parameter_ops_, faults_, *log_);
  std::ranges::fill(model_.parameters(), 0.0f);
  fresh.restore(*collectives::Mesh::single_rank(), {.resume = true, .required_step = 4});
  EXPECT_THAT(parameters(), Each(0.5f));
  EXPECT_EQ(fresh.progress().trainer_state().best_global_step, 2);
  EXPECT_EQ(fresh.progress().trainer_state().best_metric, 0.75);
  EXPECT_EQ(fresh.load_best_model(*collectives::Mesh::single_rank()), 2);
  EXPECT_THAT(parameters(), Each(0.75f));
}

TEST_F(BestModelTest, IsTheLastIfItsEvaluationIsTheBest) {
  evaluate_at(4, 0.5);
  evaluate_at(100, 0.75);
  EXPECT_EQ(load_best(), 100);
  EXPECT_THAT(parameters(), Each(0.75f));
  EXPECT_THAT(checkpoints(), ElementsAre("checkpoint-100"));
}

TEST_F(BestModelTest, IsTheLastWithAWarningIfItsCheckpointIsMissing) {
  evaluate_at(4, 0.5);
  evaluate_at(8, 0.25);
  fs::remove_all(output_ / "checkpoint-4");
  EXPECT_EQ(load_best(), 8);
  EXPECT_THAT(parameters(), Each(0.25f));
  EXPECT_THAT(log_text_.str(), HasSubstr("the checkpoint of the best model, of step 4, is missing; "
                                         "the model is that of the last step"));
}

TEST_F(BestModelTest, IsTheLastWithAWarningIfItsCheckpointIsDamaged) {
  evaluate_at(4, 0.5);
  evaluate_at(8, 0.25);
  fs::remove(output_ / "checkpoint-4/optimizer.safetensors");
  EXPECT_EQ(load_best(), 8);
  EXPECT_THAT(parameters(), Each(0.25f));
  EXPECT_TRUE(state_.can_save());
  EXPECT_THAT(log_text_.str(), HasSubstr("checkpoint-4/optimizer.safetensors"));
  EXPECT_THAT(log_text_.str(), HasSubstr("the model is that of the last step, not of step 4"));
}

TEST_F(BestModelTest, IsNeverOneWithoutANumber) {
  evaluate_at(2, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(state_.progress().trainer_state().best_metric, std::nullopt);
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
  job_.schedule.logging_steps = 2;
  evaluate_at(2, 0.5, 0.9);
  const nlohmann::json history = state_.progress().trainer_state().log_history;
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
