// Writes checkpoints, loads them bit for bit, and refuses changed ones.
#include "worker/checkpoint/checkpoint.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>

#include "tests/support/paths.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "worker/checkpoint/checksums.h"
#include "worker/checkpoint/parameters.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/safetensors_writer.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

// A model of two parameters with its moments.
struct Model {
  std::vector<float> weight, bias, moments;

  explicit Model(float start) : weight(6), bias(2), moments(16) {
    for (auto* values : {&weight, &bias, &moments}) {
      for (float& value : *values) value = start += 0.1f;
    }
  }
  TrainingTensors views() {
    const std::string w = "bert.pooler.dense.weight", b = "classifier.bias";
    return {{{w, {3, 2}, weight.data()}, {b, {2}, bias.data()}},
            {{w, {3, 2}, moments.data()}, {b, {2}, moments.data() + 6}},
            {{w, {3, 2}, moments.data() + 8}, {b, {2}, moments.data() + 14}}};
  }
  friend bool operator==(const Model&, const Model&) = default;
};

class CheckpointTest : public ::testing::Test {
 protected:
  std::filesystem::path write(std::int64_t step, float start = 1) {
    Model model(start);
    CheckpointContent content;
    content.state = state_;
    content.state.global_step = step;
    content.tensors = model.views();
    content.extra_files["config.json"] = "{}\n";
    return write_checkpoint(writer_, content);
  }
  static void flip_bit(const std::filesystem::path& path, std::size_t place) {
    std::string bytes = testing::read_text(path);
    bytes[place % bytes.size()] ^= 4;
    write_file(path, bytes);
  }
  // Expects that loading fails with this message and leaves the model unchanged.
  void expect_refused(const std::filesystem::path& path, const std::string& part,
                      const nlohmann::json& settings = nullptr) {
    Model model(50);
    expect_failure([&] { load_checkpoint(path, settings, model.views()); }, ExitCode::kCheckpoint,
                   AllOf(HasSubstr(path.string()), HasSubstr(part)));
    EXPECT_EQ(model, Model(50));
  }

  tilewright::testing::TemporaryDirectory directory_;
  std::filesystem::path output_ = directory_.path();
  OutputWriter writer_ = own(output_);
  TrainerState state_ = [] {
    TrainerState state;
    state.max_steps = 345;
    state.epoch = 0.1;
    state.num_train_epochs = 3;
    state.train_batch_size = 32;
    state.total_flos = 1.5e15;
    state.log_history = {
        {{"step", 10}, {"epoch", 0.1}, {"loss", 1.0 / 3}, {"learning_rate", 2e-5}}};
    state.job_uid = "uid-1";
    state.settings = {{"seed", 42}, {"learning_rate", 2e-5}, {"train_file", "a.tsv"}};
    state.membership_epoch = 4;
    state.examples_consumed = 320;
    state.train_seconds = 12.5;
    return state;
  }();
};

TEST_F(CheckpointTest, IsVerifiedAsTheModelOfATraining) {
  const auto path = write(10);
  EXPECT_NO_THROW(open_intact_weights(path, nullptr));
  flip_bit(path / "model.safetensors", std::filesystem::file_size(path / "model.safetensors") - 1);
  expect_failure([&] { open_intact_weights(path, nullptr); }, ExitCode::kWeights,
                 AllOf(HasSubstr("checkpoint-10/model.safetensors: is corrupt: found SHA-256"),
                       HasSubstr("if another program wrote it, remove checksums.json")));
  write_file(path / "checksums.json", "{}");
  expect_failure([&] { open_intact_weights(path, nullptr); }, ExitCode::kWeights,
                 HasSubstr("checksums.json: "));
  // A file of this name in another directory is not Tilewright's.
  std::filesystem::remove(path / kStateFile);
  EXPECT_NO_THROW(open_intact_weights(path, nullptr));
}

TEST_F(CheckpointTest, RestoresEveryBitAndEveryField) {
  Model model(1);
  model.weight = {-0.0f,
                  INFINITY,
                  std::numeric_limits<float>::denorm_min(),
                  std::bit_cast<float>(0x7fc00123u),
                  1.0f / 3,
                  -3e38f};
  CheckpointContent content;
  content.state = state_;
  content.state.global_step = 10;
  content.tensors = model.views();
  const auto path = write_checkpoint(writer_, content);
  EXPECT_EQ(path, output_ / "checkpoint-10");
  EXPECT_THAT(names_in(path), ElementsAre("checksums.json", "model.safetensors",
                                          "optimizer.safetensors", "trainer_state.json"));

  Model read(90);
  const TrainerState state = load_checkpoint(path, state_.settings, read.views());
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(read.weight[i]),
              std::bit_cast<std::uint32_t>(model.weight[i]));
  }
  EXPECT_EQ(read.bias, model.bias);
  EXPECT_EQ(read.moments, model.moments);
  EXPECT_EQ(state.global_step, 10);
  EXPECT_EQ(state.max_steps, 345);
  EXPECT_EQ(state.epoch, 0.1);
  EXPECT_EQ(state.num_train_epochs, 3);
  EXPECT_EQ(state.train_batch_size, 32);
  EXPECT_EQ(state.total_flos, 1.5e15);
  EXPECT_EQ(state.log_history, state_.log_history);
  EXPECT_EQ(state.log_history[0]["loss"].get<double>(), 1.0 / 3);
  EXPECT_EQ(state.job_uid, "uid-1");
  EXPECT_EQ(state.settings, state_.settings);
  EXPECT_EQ(state.membership_epoch, 4);
  EXPECT_EQ(state.examples_consumed, 320);
  EXPECT_EQ(state.train_seconds, 12.5);
}

// TrainerState.load_from_json() fails on a name that it does not know. The fields, from
// tests/golden/train/write_goldens.py.
TEST_F(CheckpointTest, HasTheFieldsOfTransformersTrainerState) {
  std::ifstream file(testing::source_dir() / "tests/golden/train/trainer_state.txt");
  std::vector<std::string> fields;
  for (std::string name; std::getline(file, name);) fields.push_back(name);
  const auto json = nlohmann::json::parse(trainer_state_json(state_));
  std::vector<std::string> found;
  for (const auto& [name, unused] : json.items()) found.push_back(name);
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(fields));
}

TEST_F(CheckpointTest, NamesItsTensorsAsHuggingFaceDoes) {
  const auto path = write(3);
  const SafetensorsFile optimizer(path / "optimizer.safetensors");
  std::vector<std::string> names;
  for (const auto& [name, unused] : optimizer.tensors()) names.push_back(name);
  EXPECT_THAT(names,
              ElementsAre("exp_avg.bert.pooler.dense.weight", "exp_avg.classifier.bias",
                          "exp_avg_sq.bert.pooler.dense.weight", "exp_avg_sq.classifier.bias"));
}

TEST_F(CheckpointTest, HasTheSameBytesForTheSameState) {
  const auto first = write(3);
  const std::string sums = testing::read_text(first / "checksums.json");
  std::filesystem::remove_all(first);
  EXPECT_EQ(testing::read_text(write(3) / "checksums.json"), sums);
}

TEST_F(CheckpointTest, ReplacesOneOfTheSameStep) {
  write(3, 1);
  write(3, 2);
  Model read(0);
  load_checkpoint(output_ / "checkpoint-3", nullptr, read.views());
  EXPECT_EQ(read, Model(2));
  EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-3"));
}

TEST_F(CheckpointTest, RefusesEveryFlippedBit) {
  const auto path = write(3);
  for (const std::string& name : names_in(path)) {
    const std::string whole = testing::read_text(path / name);
    for (std::size_t place = 0; place < whole.size(); place += 7) {
      flip_bit(path / name, place);
      Model model(50);
      if (name != "checksums.json") {
        expect_refused(path, name);
      } else {  // checksums.json itself: invalid JSON or a different checksum
        EXPECT_THROW(load_checkpoint(path, nullptr, model.views()), Failure) << place;
      }
      write_file(path / name, whole);
    }
  }
  Model model(50);
  load_checkpoint(path, nullptr, model.views());
  EXPECT_EQ(model, Model(1));
}

TEST_F(CheckpointTest, RefusesTruncatedAndMissingFiles) {
  const auto path = write(3);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "trainer_state.json"}) {
    const std::string whole = testing::read_text(path / name);
    write_file(path / name, whole.substr(0, whole.size() - 1));
    expect_refused(path, fmt::format("{}: is {} bytes long, expected {}", name, whole.size() - 1,
                                     whole.size()));
    std::filesystem::remove(path / name);
    expect_refused(path, fmt::format("{}: is missing", name));
    write_file(path / name, whole);
  }
  std::filesystem::remove(path / "checksums.json");
  expect_refused(path, "checksums.json: cannot open");
  expect_refused(output_ / "checkpoint-99", "checkpoint directory not found");
}

// The files of a checkpoint that the Trainer of transformers 4.57.6 writes.
TEST_F(CheckpointTest, NamesACheckpointOfTheTrainer) {
  const auto path = write(3);
  for (const char* name : {"checksums.json", "optimizer.safetensors"}) {
    std::filesystem::remove(path / name);
  }
  for (const char* name : {"rng_state.pth", "scheduler.pt", "optimizer.pt", "training_args.bin"}) {
    write_file(path / name, "PK");
    expect_refused(path, fmt::format("{}: is a checkpoint of Hugging Face's Trainer (it contains "
                                     "{}), expected one of Tilewright",
                                     path.string(), name));
    std::filesystem::remove(path / name);
  }
}

TEST_F(CheckpointTest, RefusesChecksumsWithMissingFilesOrFilesElsewhere) {
  const auto path = write(3);
  Checksums sums = read_checksums(path);
  sums.erase("optimizer.safetensors");
  write_file(path / "checksums.json", checksums_json(sums));
  expect_refused(path, "checksums.json: optimizer.safetensors is missing");
  write_file(path / "checksums.json", R"({"files":{"../x":{"sha256":"","size":0}}})");
  expect_refused(path, "found the name of a file outside its directory");
  write_file(path / "checksums.json", R"({"files":{"x":{"sha256":"","size":-1}}})");
  expect_refused(path, "files.x.size is -1, expected");
  write_file(path / "checksums.json", R"({"files":{}})");
  expect_refused(path, "found no files, expected at least one");
}

TEST_F(CheckpointTest, RefusesAnotherModel) {
  const auto path = write(3);
  Model model(50);
  const auto refuses = [&](const TrainingTensors& views, const char* part) {
    expect_failure([&] { load_checkpoint(path, nullptr, views); }, ExitCode::kCheckpoint,
                   HasSubstr(part));
    EXPECT_EQ(model, Model(50));
  };
  TrainingTensors views = model.views();
  views.weights[0].shape = {2, 3};
  refuses(views,
          "model.safetensors: tensor \"bert.pooler.dense.weight\": found shape [3, 2], "
          "expected [2, 3]");
  views = model.views();
  views.exp_avg_sq[1].name = "classifier.gain";
  refuses(views, "optimizer.safetensors: has no tensor \"exp_avg_sq.classifier.gain\"");
  views = model.views();
  views.weights.pop_back();
  refuses(views, "found tensor \"classifier.bias\", which this model does not have");
}

TEST_F(CheckpointTest, NamesTheSettingThatDiffers) {
  const auto path = write(3);
  nlohmann::json settings = state_.settings;
  settings["seed"] = 43;
  expect_refused(path, "found setting seed = 42, expected 43", settings);
  settings = state_.settings;
  settings["new"] = true;
  expect_refused(path, "found setting new = missing, expected true", settings);
  settings = state_.settings;
  settings.erase("train_file");
  expect_refused(path, "found setting train_file = \"a.tsv\", expected missing", settings);
}

TEST_F(CheckpointTest, RefusesAStateWithMalformedFields) {
  const auto path = directory_.path() / "state.json";
  const auto json = nlohmann::json::parse(trainer_state_json(state_));
  const auto refuses = [&](const char* pointer, const nlohmann::json& value, const char* part) {
    auto changed = json;
    changed[nlohmann::json::json_pointer(pointer)] = value;
    write_file(path, changed.dump());
    expect_failure([&] { read_trainer_state(path); }, ExitCode::kCheckpoint, HasSubstr(part));
  };
  refuses("/global_step", -1, "global_step is -1, expected an integer from 0");
  refuses("/epoch", "x", "epoch is \"x\", expected a number");
  refuses("/log_history", 1, "log_history is 1, expected a list");
  refuses("/stateful_callbacks/tilewright", nullptr, "stateful_callbacks.tilewright is null");
  refuses("/stateful_callbacks/tilewright/job_uid", 1,
          "tilewright.job_uid is 1, expected a string");
  refuses("/stateful_callbacks/tilewright/settings", 1, "tilewright.settings is 1, expected an");
}

// As with --logging_steps 1: MNLI has 147,000 steps in three epochs of batches of eight.
TEST_F(CheckpointTest, KeepsALogHistoryOf200000Entries) {
  constexpr int kEntries = 200'000;
  const nlohmann::json entry = {{"epoch", 2.0 / 3},
                                {"grad_norm", 1.0 / 3},
                                {"learning_rate", 2e-5 / 3},
                                {"loss", 0.1 / 3},
                                {"step", 100'000}};
  state_.log_history = nlohmann::json::array_t(kEntries, entry);
  const auto path = write(kEntries);
  EXPECT_GT(std::filesystem::file_size(path / kStateFile), std::size_t{32} << 20);
  Model model(1);
  const TrainerState state = load_checkpoint(path, state_.settings, model.views());
  EXPECT_THAT(state.log_history, SizeIs(kEntries));
  EXPECT_EQ(state.log_history.back(), entry);
}

TEST_F(CheckpointTest, VerifiesTheStateBeforeItIsRead) {
  const auto path = write(3);
  EXPECT_EQ(read_checkpoint_state(path).global_step, 3);
  flip_bit(path / kStateFile, 40);
  expect_failure([&] { read_checkpoint_state(path); }, ExitCode::kCheckpoint,
                 HasSubstr("trainer_state.json: is corrupt: found SHA-256"));
  std::filesystem::remove(path / kChecksumsFile);
  expect_failure([&] { read_checkpoint_state(path); }, ExitCode::kCheckpoint,
                 HasSubstr("checksums.json"));
}

TEST_F(CheckpointTest, IsTheLatestIfItHasTheHighestStep) {
  EXPECT_EQ(latest_valid_checkpoint(output_ / "nowhere").path, std::nullopt);
  EXPECT_EQ(latest_valid_checkpoint(output_).path, std::nullopt);
  for (const std::int64_t step : {9, 100, 20}) write(step);
  // None of these is a checkpoint.
  for (const char* name :
       {"checkpoint-", "checkpoint-0200", "checkpoint-x", "checkpoint-300", "checkpoint--5",
        ".checkpoint-400.tmp-1", "old-checkpoint-500", "checkpoint-99999999999999999999"}) {
    std::filesystem::create_directory(output_ / name);
  }
  EXPECT_EQ(latest_valid_checkpoint(output_).path, output_ / "checkpoint-100");
  EXPECT_THAT(
      list_checkpoints(output_),
      ElementsAre(output_ / "checkpoint-100", output_ / "checkpoint-20", output_ / "checkpoint-9"));
}

TEST_F(CheckpointTest, FallsBackToTheLatestOneThatIsNotCorrupt) {
  for (const std::int64_t step : {1, 2, 3, 4}) write(step);
  flip_bit(output_ / "checkpoint-4/model.safetensors", 300);
  std::filesystem::resize_file(output_ / "checkpoint-3/optimizer.safetensors", 10);

  const ValidCheckpoint valid = latest_valid_checkpoint(output_);
  EXPECT_EQ(valid.path, output_ / "checkpoint-2");
  ASSERT_THAT(valid.warnings, SizeIs(2));
  EXPECT_THAT(valid.warnings[0], AllOf(HasSubstr("checkpoint-4"), HasSubstr("is corrupt")));
  EXPECT_THAT(valid.warnings[1], AllOf(HasSubstr("checkpoint-3"), HasSubstr("is 10 bytes long")));
}

TEST_F(CheckpointTest, IsNotFoundIfAllAreCorrupt) {
  write(1);
  flip_bit(output_ / "checkpoint-1/trainer_state.json", 5);
  const ValidCheckpoint valid = latest_valid_checkpoint(output_);
  EXPECT_EQ(valid.path, std::nullopt);
  EXPECT_THAT(valid.warnings, SizeIs(1));
}

// A process that is being stopped still writes while the one that replaces it begins to read.
TEST_F(CheckpointTest, IsFoundWhileAnotherProcessReplacesIt) {
  write(1);
  std::atomic<bool> ended = false;
  std::thread other([&] {
    for (std::int64_t step = 2; step <= 200; ++step) {
      write(step);
      prune(writer_, 1);
    }
    ended = true;
  });
  int missed = 0;
  while (!ended) {
    const ValidCheckpoint valid = latest_valid_checkpoint(output_);
    missed += !valid.path || !valid.warnings.empty() ? 1 : 0;
  }
  other.join();
  EXPECT_EQ(missed, 0);
}

TEST_F(CheckpointTest, PrunesOldestFirst) {
  for (const std::int64_t step : {1, 2, 3, 10}) write(step);
  std::filesystem::create_directory(output_ / "checkpoint-0");  // without checksums.json
  EXPECT_THAT(prune(writer_, 0), IsEmpty());
  EXPECT_THAT(prune(writer_, 4), IsEmpty());
  EXPECT_THAT(prune(writer_, 2), ElementsAre(output_ / "checkpoint-1", output_ / "checkpoint-2"));
  EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-0", "checkpoint-10", "checkpoint-3"));
}

TEST_F(CheckpointTest, PruneKeepsTheBest) {
  for (const std::int64_t step : {1, 2, 3, 4, 5}) write(step);
  EXPECT_THAT(prune(writer_, 3, 2),
              ElementsAre(output_ / "checkpoint-1", output_ / "checkpoint-3"));
  EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-2", "checkpoint-4", "checkpoint-5"));
  EXPECT_THAT(prune(writer_, 1, 2), ElementsAre(output_ / "checkpoint-4"));
  EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-2", "checkpoint-5"))
      << "the newest, from which the training resumes, is kept too";
  EXPECT_THAT(prune(writer_, 1, 5), ElementsAre(output_ / "checkpoint-2"));
  write(6);
  EXPECT_THAT(prune(writer_, 1, 99), ElementsAre(output_ / "checkpoint-5")) << "was not written";
}

// A training that could not resume from a damaged checkpoint writes older ones.
TEST_F(CheckpointTest, PruneKeepsWhatWasJustWrittenBesideLaterCheckpoints) {
  for (const std::int64_t step : {1, 2, 3, 30}) write(step);
  flip_bit(output_ / "checkpoint-30/trainer_state.json", 5);
  EXPECT_THAT(prune(writer_, 1, 0, 3),
              ElementsAre(output_ / "checkpoint-1", output_ / "checkpoint-2"));
  EXPECT_EQ(latest_valid_checkpoint(output_).path, output_ / "checkpoint-3");
}

TEST_F(CheckpointTest, KeepsTheBestEvaluation) {
  Model model(1);
  CheckpointContent content;
  content.state.global_step = 7;
  content.tensors = model.views();
  const auto state_of = [&] {
    return read_trainer_state(write_checkpoint(writer_, content) / kStateFile);
  };
  EXPECT_EQ(state_of().best_metric, std::nullopt);
  content.state.best_metric = 0.875;
  content.state.best_global_step = 3;
  content.state.best_model_checkpoint = "out/checkpoint-3";
  EXPECT_EQ(state_of().best_metric, 0.875);
  EXPECT_EQ(state_of().best_global_step, 3);
  EXPECT_EQ(state_of().best_model_checkpoint, "out/checkpoint-3");
}

TEST_F(CheckpointTest, PruneIgnoresIncompleteCheckpoints) {
  for (const std::int64_t step : {1, 2, 3}) write(step);
  std::filesystem::resize_file(output_ / "checkpoint-3/model.safetensors", 10);
  EXPECT_THAT(prune(writer_, 1), ElementsAre(output_ / "checkpoint-1"));
  EXPECT_EQ(latest_valid_checkpoint(output_).path, output_ / "checkpoint-2");
}

TEST_F(CheckpointTest, IsAbsentIfItsWriterDiesBeforeTheRename) {
  write(3);
  const pid_t child = fork();
  if (child == 0) {
    Model model(9);
    CheckpointContent content;
    content.state.global_step = 4;
    content.tensors = model.views();
    content.before_commit = [] { kill(getpid(), SIGKILL); };
    write_checkpoint(writer_, content);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_THAT(content_of(output_), ElementsAre(StartsWith(".checkpoint-4.tmp-"), "checkpoint-3"));
  const auto left = output_ / content_of(output_).front() / "checkpoint-4";
  EXPECT_THAT(names_in(left), SizeIs(4)) << "expected all files in the staging directory";
  EXPECT_EQ(latest_valid_checkpoint(output_).path, output_ / "checkpoint-3");
  writer_ = own(output_);
  EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-3"));
  write(4);
  EXPECT_EQ(latest_valid_checkpoint(output_).path, output_ / "checkpoint-4");
}

TEST_F(CheckpointTest, LeavesNoFilesIfItCannotBeWritten) {
  Model model(1);
  CheckpointContent content;
  content.tensors = model.views();
  content.extra_files["no/such"] = "x";
  expect_failure([&] { write_checkpoint(writer_, content); }, ExitCode::kOutput,
                 HasSubstr("no/such: cannot create"));
  EXPECT_THAT(content_of(output_), IsEmpty());
}

}  // namespace
}  // namespace tilewright::checkpoint
