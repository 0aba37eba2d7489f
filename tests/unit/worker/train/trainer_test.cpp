// Trains the model of tests/golden/data/small_d64 on four pairs of sentences.
#include "worker/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/contract/training_report.h"
#include "tests/support/manual_clock.h"
#include "tests/support/paths.h"
#include "tests/support/scrape.h"
#include "tests/support/silent_logger.h"
#include "tests/unit/worker/collectives/cluster.h"
#include "worker/checkpoint/model_config.h"
#include "worker/checkpoint/output_ownership.h"
#include "worker/collectives/exchange.h"
#include "worker/train/progress_reporter.h"
#include "worker/train/summary.h"

namespace tilewright::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using tilewright::testing::make_silent_logger;

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

  // Of three steps over all rows, without dropout.
  Settings settings_of(const std::vector<std::string>& more) const {
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
        "--bf16=false"};
    flags.insert(flags.end(), more.begin(), more.end());
    return make_settings(TrainingArguments::parse(flags).or_throw(), {});
  }
  // One process with the starting weights and an output directory.
  struct Process {
    explicit Process(const Settings& settings) : job(load_job(settings, "uid-1")) {
      trainer->begin_epoch(*mesh);
      trainer->restore(*mesh, {});
      trainer->set_output(checkpoint::acquire_output_dir(settings.output_dir, {"uid-1", 1}));
    }
    const Job job;
    runtime::ThreadPool pool{1};
    Faults faults;
    std::shared_ptr<Logger> log = make_silent_logger();
    std::unique_ptr<Trainer> trainer = make_trainer(job, runtime::Isa::kRef, pool, faults, *log);
    std::unique_ptr<collectives::Mesh> mesh = collectives::Mesh::single_rank();
  };

  void train(const std::vector<std::string>& more) {
    const Process process(settings_of(more));
    TrainerHooks hooks;
    hooks.on_step = [&](const StepReport& report, const Rates&) { losses_.push_back(report.loss); };
    process.trainer->train(*process.mesh, hooks);
    evaluation_ = process.trainer->evaluate(*process.mesh, process.job.evaluation_sets.front(), {});
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

TEST_F(TrainerTest, TouchesItsMemoryBeforeItIsUsed) {
  const nlohmann::json rows = golden_.at("rows");
  for (int copy = 0; copy < 63; ++copy) {
    golden_.at("rows").insert(golden_.at("rows").end(), rows.begin(), rows.end());
  }
  write_rows([](const nlohmann::json& row) { return row; });
  const Process process(settings_of({"--per_device_train_batch_size=256"}));
  const std::uint64_t before = runtime::anonymous_rss();
  process.trainer->touch_memory();
  const MemoryEstimate& need = process.trainer->memory_estimate();
  const std::uint64_t buffers = need.activations + need.gradients;  // the weights are loaded
  EXPECT_GT(buffers, std::uint64_t{16} << 20) << "large enough to be seen";
  EXPECT_GT(runtime::anonymous_rss() - before, buffers * 9 / 10);
}

// The evaluation after step 2 is in the report of step 3, and in the first one of the next
// membership epoch.
TEST_F(TrainerTest, ReportsTheResultsOfTheLastEvaluationUntilTheNext) {
  const Process process(settings_of({"--eval_strategy=steps", "--eval_steps=2"}));
  elastic::Session session({}, nullptr, process.log);
  auto exposition = metrics::Exposition::serve({"127.0.0.1", 0}, {}).or_throw();
  kernels::PeakMeter peak([] { return 1.0; });
  ProgressReporter reporter(process.job, *process.trainer, session, exposition.get(), nullptr, peak,
                            1);
  std::vector<bool> reported;
  const auto scrape = [&] {
    reported.push_back(testing::scrape(exposition->port()).find("tilewright_evaluation{") !=
                       std::string::npos);
  };
  TrainerHooks hooks;
  hooks.on_step = [&](const StepReport& report, const Rates& rates) {
    reporter.add_step(report, rates);
    scrape();
  };
  hooks.on_evaluation = [&](const EvaluationResult& result) { reporter.add_evaluation(result); };
  process.trainer->train(*process.mesh, hooks);
  exposition = metrics::Exposition::serve({"127.0.0.1", 0}, {}).or_throw();
  ProgressReporter next(process.job, *process.trainer, session, exposition.get(), nullptr, peak, 1);
  next.begin_phase(training_report::kTrainingPhase);
  scrape();
  EXPECT_THAT(reported, ::testing::ElementsAre(false, false, true, true));
}

TEST_F(TrainerTest, SavesTheTokenizerThatItStartedWith) {
  const std::string vocabulary = testing::read_text(model_ / "vocab.txt");
  const Process process(settings_of({"--save_strategy=steps", "--save_steps=3"}));
  fs::remove(model_ / "vocab.txt");
  process.trainer->train(*process.mesh, {});
  process.trainer->write_model({});
  EXPECT_EQ(testing::read_text(output_ / "checkpoint-3/vocab.txt"), vocabulary);
  EXPECT_EQ(testing::read_text(output_ / "vocab.txt"), vocabulary);
}

// As of a model that was pre-trained only, which may have the pooler.
TEST_F(TrainerTest, RefusesToEvaluateAHeadThatTheWeightsLack) {
  const fs::path path = model_ / "model.safetensors";
  const std::string complete = testing::read_text(path);
  const std::string test_file = "--test_file=" + (directory_.path() / "rows.json").string();
  const fs::path unknown_label = directory_.path() / "unknown_label.json";
  nlohmann::json row = golden_.at("rows").front();
  row["label"] = 17;
  std::ofstream(unknown_label) << row.dump();
  for (const std::string tensor : {"classifier.weight", "bert.pooler.dense.weight"}) {
    std::string content = complete;
    content.replace(content.find(tensor), tensor.size(), std::string(tensor.size(), 'x'));
    std::ofstream(path, std::ios::binary) << content;
    for (const std::vector<std::string>& flags :
         {std::vector<std::string>{"--do_eval"},
          {"--do_predict", test_file},
          {"--do_eval", "--validation_file=" + unknown_label.string()},
          {"--do_eval", "--ignore_mismatched_sizes"}}) {
      try {
        load_job(settings_of(flags), "uid-1");
        ADD_FAILURE() << tensor << " " << flags.back();
      } catch (const Failure& failure) {
        EXPECT_EQ(failure.code(), ExitCode::kWeights);
        EXPECT_THAT(failure.what(),
                    AllOf(StartsWith(model_.string() + ": the weights lack " + tensor),
                          HasSubstr(", expected those of a trained classifier")));
      }
    }
    EXPECT_NO_THROW(load_job(settings_of({"--do_train", "--do_eval"}), "uid-1")) << tensor;
  }
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

TEST_F(TrainerTest, RefusesToCountThePaddingInTheLossOfAClassification) {
  write_rows([](const nlohmann::json& row) { return row; });
  EXPECT_THAT(failure({"--loss_counts_padding"}, ExitCode::kUsage),
              AllOf(StartsWith("--loss_counts_padding: found with "),
                    HasSubstr("expected a question answering task")));
}

TEST_F(TrainerTest, IsAnotherJobIfTheModelsConfigurationChanges) {
  const auto fingerprint_now = [&] { return load_job(settings_of({}), "uid-1").fingerprint; };
  const nlohmann::json before = fingerprint_now();
  EXPECT_EQ(fingerprint_now(), before);
  const fs::path path = model_ / "config.json";
  nlohmann::json config = nlohmann::json::parse(testing::read_text(path));
  config["num_attention_heads"] = 2 * config.at("num_attention_heads").get<int>();
  std::ofstream(path) << config.dump();
  EXPECT_NE(fingerprint_now(), before);
}

// Both have batches of 4, of which the first splits 6 examples into micro-batches of 2.
TEST_F(TrainerTest, IsAnotherJobIfADroppedBatchHasAnotherSize) {
  const nlohmann::json rows = golden_.at("rows");
  golden_.at("rows").insert(golden_.at("rows").end(), rows.begin(), rows.end());
  write_rows([](const nlohmann::json& row) { return row; });
  const auto fingerprint_of = [&](std::vector<std::string> flags) {
    flags.emplace_back("--max_train_samples=6");
    return load_job(settings_of(flags), "uid-1").fingerprint;
  };
  const std::vector<std::string> halves = {"--per_device_train_batch_size=2",
                                           "--gradient_accumulation_steps=2"};
  EXPECT_EQ(fingerprint_of(halves), fingerprint_of({}));
  std::vector<std::string> dropped = halves;
  dropped.emplace_back("--dataloader_drop_last");
  EXPECT_NE(fingerprint_of(dropped), fingerprint_of({"--dataloader_drop_last"}));
}

TEST_F(TrainerTest, OtherEvaluationDataAreAnotherJobOnlyIfTheySelectTheBestModel) {
  write_rows([](const nlohmann::json& row) { return row; });
  const auto load = [&](std::vector<std::string> flags, const char* samples) {
    flags.push_back(std::string("--max_eval_samples=") + samples);
    return load_job(settings_of(flags), "");
  };
  const Job one = load({}, "1");
  const Job two = load({}, "2");
  EXPECT_NE(one.evaluation_fingerprint, two.evaluation_fingerprint);
  EXPECT_EQ(one.fingerprint, two.fingerprint);
  EXPECT_EQ(one.uid, two.uid);
  const std::vector<std::string> best = {"--load_best_model_at_end", "--eval_strategy=epoch",
                                         "--save_strategy=epoch"};
  EXPECT_NE(load(best, "1").fingerprint, load(best, "2").fingerprint);
}

TEST_F(TrainerTest, SaysWhatItTrainsOnTheUsersFiles) {
  const Job job = load_job(settings_of({}), "uid-1");
  const std::string line = columns_line(job);
  EXPECT_THAT(line, StartsWith("columns: \""));
  EXPECT_THAT(line, HasSubstr("(sentences), \"label\"; classification, "));
  EXPECT_LE(line.size(), kMaxSummaryColumns);
}

// The model has 64 positions.
TEST_F(TrainerTest, CutsTextsToTheTokensThatModelAndTokenizerTake) {
  write_rows([](nlohmann::json row) {
    row["sentence1"] = std::string(200, '!');
    return row;
  });
  const auto expect_tokens = [&](const char* asked, std::int64_t expected) {
    const Settings settings = settings_of({std::string("--max_seq_length=") + asked});
    const Job job = load_job(settings, "uid-1");
    EXPECT_EQ(job.settings.max_seq_length, expected) << asked;
    EXPECT_EQ(job.train_data.length(0), static_cast<std::size_t>(expected)) << asked;
    EXPECT_EQ(job.fingerprint.at("max_seq_length"), expected) << asked;
    const std::string line = max_seq_length_line(settings.max_seq_length, job);
    if (std::to_string(expected) == asked) {
      EXPECT_EQ(line, "");
    } else {
      EXPECT_EQ(line,
                fmt::format("--max_seq_length={}: the model takes at most {} tokens; using {}",
                            asked, expected, expected));
    }
  };
  expect_tokens("63", 63);
  expect_tokens("64", 64);
  expect_tokens("65", 64);
  std::ofstream(model_ / "tokenizer_config.json") << R"({"model_max_length": 16})";
  expect_tokens("15", 15);
  expect_tokens("64", 16);
}

// The output has the model's config.json, which may name another class or none.
TEST_F(TrainerTest, NamesTheTokenizersClassInTheOutput) {
  const auto file_of = [&](const std::vector<std::string>& more) {
    return load_job(settings_of(more), "uid-1").tokenizer_files["tokenizer_config.json"];
  };
  EXPECT_EQ(file_of({}), "");
  const testing::TemporaryDirectory other;
  fs::copy_file(model_ / "vocab.txt", other.path() / "vocab.txt");
  const std::string flag = "--tokenizer_name=" + other.path().string();
  EXPECT_EQ(nlohmann::json::parse(file_of({flag}))["tokenizer_class"], "BertTokenizer");
  std::ofstream(other.path() / "config.json") << R"({"tokenizer_class": "DistilBertTokenizer"})";
  std::ofstream(other.path() / "tokenizer_config.json") << R"({"model_max_length": 16})";
  const auto named = nlohmann::json::parse(file_of({flag}));
  EXPECT_EQ(named["tokenizer_class"], "DistilBertTokenizer");
  EXPECT_EQ(named["model_max_length"], 16);
}

TEST_F(TrainerTest, RefusesAModelWithoutRoomForTheSpecialTokens) {
  const auto refusal = [&] {
    try {
      load_job(settings_of({}), "uid-1");
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kModel);
      return std::string(failure.what());
    }
    return std::string();
  };
  std::ofstream(model_ / "tokenizer_config.json") << R"({"model_max_length": 3})";
  EXPECT_EQ(refusal(), "");
  std::ofstream(model_ / "tokenizer_config.json") << R"({"model_max_length": 2})";
  EXPECT_EQ(refusal(), model_.string() +
                           ": the smaller of max_position_embeddings in config.json and "
                           "model_max_length in tokenizer_config.json is 2, expected at least 3 "
                           "for [CLS] and two [SEP]");
}

// A weight decay of 100 at learning rate 100 multiplies the weights by -9999 in each step.
const std::vector<std::string> kDiverging = {"--learning_rate=100", "--weight_decay=100",
                                             "--max_steps=60", "--save_steps=1",
                                             "--save_total_limit=60"};

TEST_F(TrainerTest, KeepsTheCheckpointsBeforeItDiverges) {
  const std::string message = failure(kDiverging, ExitCode::kDiverged);
  const std::size_t steps = losses_.size();
  ASSERT_GT(steps, 1U);
  ASSERT_LT(steps, 60U);
  for (const double loss : losses_) EXPECT_TRUE(std::isfinite(loss)) << loss;
  EXPECT_THAT(message, AllOf(StartsWith(fmt::format("step {}: ", steps + 1)),
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

// As in transformers, if config.json has none of its own.
TEST_F(TrainerTest, TheHiddenDropoutIsThatOfTheClassifier) {
  const auto classifier = [&](const std::vector<std::string>& flags) {
    return load_job(settings_of(flags), "uid-1").model.encoder.classifier_dropout;
  };
  EXPECT_EQ(classifier({}), 0);
  EXPECT_EQ(classifier({"--hidden_dropout_prob=0.25"}), 0.25f);
  EXPECT_EQ(classifier({"--classifier_dropout=0.5"}), 0.5f);
}

TEST_F(TrainerTest, HasNoCompleteStateAfterADivergence) {
  set_weights("classifier.bias", {-3e38f, 3e38f});
  const Process process(settings_of({}));
  EXPECT_TRUE(process.trainer->position().complete());
  EXPECT_THROW(process.trainer->train(*process.mesh, {}), Failure);
  EXPECT_FALSE(process.trainer->position().complete());
}

// The membership epoch ends after a step that made a weight infinite, and no other epoch forms.
TEST_F(TrainerTest, WritesNoInfiniteWeightsOutsideOfMembershipEpochs) {
  set_weights("classifier.weight", {1e35f});
  std::vector<std::string> flags = kDiverging;
  flags.emplace_back("--save_strategy=no");
  const Process process(settings_of(flags));
  TrainerHooks hooks;
  hooks.on_step = [](const StepReport&, const Rates&) {
    throw Failure(ExitCode::kPeerLost, "a peer is lost");
  };
  EXPECT_THROW(process.trainer->train(*process.mesh, hooks), Failure);
  EXPECT_EQ(process.trainer->step(), 1);
  try {
    process.trainer->save_checkpoint(2);
    ADD_FAILURE() << "a checkpoint was written";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kDiverged) << failure.what();
  }
  EXPECT_THAT(checkpoints(), IsEmpty());
}

// Workers of several membership epochs, as threads with a trainer each.
class MemoryTest : public TrainerTest {
 protected:
  struct Worker {
    Worker(const Job& job, Logger& log)
        : trainer(make_trainer(job, runtime::Isa::kRef, pool, faults, log, clock)) {}
    // Computing takes no time but this for each shard.
    void set_time_of_shard(std::chrono::milliseconds time) {
      faults = Faults::parse(fmt::format("step.shard,delay={}", time.count())).value();
      faults.sleep_with([this](std::chrono::milliseconds delay) { clock.advance(delay); });
      faults.enter(0, 1);
    }
    runtime::ThreadPool pool{1};
    testing::ManualClock clock;
    Faults faults;
    std::unique_ptr<Trainer> trainer;
  };

  MemoryTest() : job_(make_job()) {}
  ~MemoryTest() override { collectives::tested_epoch = 1; }

  Job make_job(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> flags = {
        "--train_file=" + (directory_.path() / "rows.json").string(),
        "--validation_file=" + (directory_.path() / "rows.json").string(),
        "--model_name_or_path=" + model_.string(),
        "--max_seq_length=32",
        "--output_dir=" + output_.string(),
        "--max_workers=3",
        "--per_device_train_batch_size=4",
        "--max_steps=6",
        "--logging_steps=1",
        "--save_strategy=no",
        "--bf16=false"};
    flags.insert(flags.end(), more.begin(), more.end());
    const TrainingArguments arguments = TrainingArguments::parse(flags).or_throw();
    return load_job(make_settings(arguments, {}), "uid-1");
  }
  std::unique_ptr<Worker> make_worker() { return std::make_unique<Worker>(job_, *log_); }

  static elastic::StateAgreement agree(const std::vector<Worker*>& workers) {
    std::vector<elastic::StateReport> reports;
    reports.reserve(workers.size());
    for (const Worker* worker : workers) {
      reports.push_back({"settings", worker->trainer->position(), -1});
    }
    return elastic::agree_on_state(reports, -1);
  }
  // Runs one membership epoch: all workers agree, restore and train until rank 0 has `steps`.
  // `disturb` runs on each rank before it restores. Returns each rank's Failure, or "".
  using Disturb = std::function<void(int rank, collectives::Mesh& mesh)>;
  std::vector<std::string> run_epoch(const std::vector<Worker*>& workers, std::int64_t steps,
                                     const Disturb& disturb = {}, bool after_loss = false) {
    agreement_ = agree(workers);
    ++collectives::tested_epoch;
    return collectives::run_ranks(static_cast<int>(workers.size()), [&](collectives::Mesh& mesh) {
      Trainer& trainer = *workers[static_cast<std::size_t>(mesh.rank())]->trainer;
      trainer.begin_epoch(mesh);
      if (disturb) disturb(mesh.rank(), mesh);
      RestoreFrom from{false, -1, agreement_, after_loss};
      from.transfer = transfer_;
      const Restored restored = trainer.restore(mesh, from);
      TrainerHooks hooks;
      hooks.stop_requested = [&] {
        return trainer.step() + 1 >= steps ? StopRequest::kStop : StopRequest::kNone;
      };
      if (mesh.rank() == 0) {
        in_background_ = restored.in_background;
        hooks.on_speeds = [&](const RankSpeeds& speeds) { speeds_.push_back(speeds); };
        hooks.on_state_sent = [&] { state_sent_.push_back(trainer.step()); };
      }
      trainer.train(mesh, hooks);
    });
  }
  // Rank 1 takes part in the first operation of the transfer and in `then` only.
  std::vector<std::string> run_epoch_that_kills_rank1(
      const std::vector<Worker*>& workers, const std::function<void(collectives::Mesh&)>& then) {
    return run_epoch(workers, 6, [&](int rank, collectives::Mesh& mesh) {
      if (rank != 1) return;
      collectives::broadcast_string(mesh, 0, "", 1 << 20, collectives::test_deadline());
      then(mesh);
      throw Failure(ExitCode::kPeerLost, "killed");
    });
  }
  std::vector<float> weights(const Worker& worker) const {
    return worker.trainer->save_state().parameters;
  }
  std::vector<float> undisturbed() {
    const auto one = make_worker();
    collectives::expect_no_errors(run_epoch({one.get()}, 6));
    return weights(*one);
  }

  std::shared_ptr<Logger> log_ = make_silent_logger();
  Job job_;
  elastic::StateAgreement agreement_;
  TransferOptions transfer_;
  // Of rank 0: what it has reported, and the steps after which all had the state.
  std::vector<RankSpeeds> speeds_;
  bool in_background_ = false;
  std::vector<std::int64_t> state_sent_;
};

TEST_F(MemoryTest, AWorkerGetsTheStateFromTheOthers) {
  const std::vector<float> expected = undisturbed();
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  EXPECT_FALSE(a->trainer->position().complete());
  collectives::expect_no_errors(run_epoch({a.get()}, 2));
  EXPECT_EQ(a->trainer->step(), 2);
  collectives::expect_no_errors(run_epoch({b.get(), a.get()}, 3));  // rank 0 is new
  EXPECT_THAT(agreement_.senders, ::testing::ElementsAre(1));
  EXPECT_EQ(b->trainer->step(), 3);
  collectives::expect_no_errors(run_epoch({a.get(), b.get(), c.get()}, 5));
  EXPECT_THAT(agreement_.senders, ::testing::ElementsAre(0, 1));
  collectives::expect_no_errors(run_epoch({c.get()}, 6));
  EXPECT_TRUE(weights(*c) == expected);
  const auto& history = c->trainer->state().log_history;
  ASSERT_EQ(history.size(), 6U) << history.dump();
  for (std::size_t i = 0; i < history.size(); ++i) EXPECT_EQ(history[i].at("step"), i + 1);
  EXPECT_EQ(c->trainer->recovery_counts().recoveries, 0);
  EXPECT_GT(c->trainer->train_seconds(), 0);
}

// The meshes have links for a transfer beside the steps, and nothing is sent before the first step.
class BackgroundTransferTest : public MemoryTest {
 protected:
  BackgroundTransferTest() {
    collectives::tested_background = true;
    transfer_ = {.stall = {}, .piece_bytes = 512};
  }
  ~BackgroundTransferTest() override { collectives::tested_background = false; }
  // Runs one membership epoch with these hooks. Returns each rank's Failure, or "".
  std::vector<std::string> train_with(const std::vector<Worker*>& workers,
                                      const std::function<TrainerHooks(std::size_t rank)>& hooks) {
    RestoreFrom from{false, -1, agree(workers), false};
    from.transfer = transfer_;
    return collectives::run_ranks(static_cast<int>(workers.size()), [&](collectives::Mesh& mesh) {
      const auto rank = static_cast<std::size_t>(mesh.rank());
      Trainer& trainer = *workers[rank]->trainer;
      trainer.begin_epoch(mesh);
      trainer.restore(mesh, from);
      EXPECT_EQ(trainer.train(mesh, hooks(rank)), Outcome::kStopped);
    });
  }
  // The same; each rank has the same request in every step.
  std::vector<std::string> train_with_requests(const std::vector<Worker*>& workers,
                                               const std::vector<StopRequest>& requests) {
    return train_with(workers, [&](std::size_t rank) {
      TrainerHooks hooks;
      hooks.stop_requested = [&requests, rank] { return requests[rank]; };
      return hooks;
    });
  }
  // At the beginning of the membership epoch after speeds_.clear().
  std::vector<int> without_shards() const {
    std::vector<int> ranks;
    const auto& split = speeds_.front().split;
    for (std::size_t rank = 0; rank < split.size(); ++rank) {
      if (split[rank].size() == 0) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }
};

TEST_F(BackgroundTransferTest, WorkersTrainWhileOthersGetTheState) {
  job_ = make_job({"--max_steps=40"});
  const auto one = make_worker();
  collectives::expect_no_errors(run_epoch({one.get()}, 40));
  const std::vector<float> expected = weights(*one);
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 2));
  speeds_.clear();
  collectives::expect_no_errors(run_epoch({c.get(), a.get(), b.get()}, 20));  // rank 0 is new
  EXPECT_TRUE(in_background_);
  EXPECT_THAT(without_shards(), ::testing::ElementsAre(0));
  ASSERT_EQ(state_sent_.size(), 1U);
  EXPECT_GT(state_sent_[0], 2);
  EXPECT_EQ(speeds_.back().split, collectives::even_split(3, 4));
  EXPECT_TRUE(c->trainer->position().complete());
  EXPECT_EQ(c->trainer->step(), 20);
  collectives::expect_no_errors(run_epoch({c.get()}, 40));
  EXPECT_TRUE(weights(*c) == expected);
  EXPECT_TRUE(c->trainer->save_state().exp_avg_sq == one->trainer->save_state().exp_avg_sq);
}

// Two workers at once, of which one has missed steps; over all links.
TEST_F(BackgroundTransferTest, SeveralWorkersGetTheState) {
  job_ = make_job({"--max_workers=4"});
  const std::vector<float> expected = undisturbed();
  for (const auto links :
       {collectives::SharedMemory::kNever, collectives::SharedMemory::kRequired}) {
    collectives::tested_links = links;
    const auto a = make_worker(), b = make_worker(), c = make_worker(), d = make_worker();
    collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 1));
    collectives::expect_no_errors(run_epoch({b.get(), c.get()}, 3));
    speeds_.clear();
    collectives::expect_no_errors(run_epoch({a.get(), b.get(), d.get(), c.get()}, 6));
    EXPECT_THAT(agreement_.receivers, ::testing::ElementsAre(0, 2));
    EXPECT_THAT(without_shards(), ::testing::ElementsAre(0, 2));
    for (const Worker* worker : {a.get(), b.get(), c.get(), d.get()}) {
      EXPECT_TRUE(weights(*worker) == expected);
    }
  }
  collectives::tested_links = collectives::SharedMemory::kNever;
}

// The weights are needed after the first step, by a rank 0 that has none before.
TEST_F(BackgroundTransferTest, IsCompleteBeforeAnEvaluation) {
  job_ = make_job({"--do_train", "--do_eval", "--eval_strategy=steps", "--eval_steps=4"});
  transfer_.share_per_step = 0.1;
  const std::vector<float> expected = undisturbed();
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 3));
  collectives::expect_no_errors(run_epoch({c.get(), a.get(), b.get()}, 6));
  EXPECT_TRUE(in_background_);
  EXPECT_THAT(state_sent_, ::testing::ElementsAre(4));
  EXPECT_TRUE(weights(*c) == expected);
}

// A checkpoint is due while rank 0 has no weights.
TEST_F(BackgroundTransferTest, ANewRank0MakesUpForACheckpoint) {
  job_ = make_job(
      {"--max_steps=20", "--save_strategy=steps", "--save_steps=4", "--save_total_limit=20"});
  transfer_.share_per_step = 0.3;
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 3));
  c->trainer->set_output(checkpoint::acquire_output_dir(output_, {"uid-1", 1}));
  collectives::expect_no_errors(run_epoch({c.get(), a.get(), b.get()}, 19));
  ASSERT_THAT(state_sent_, ::testing::ElementsAre(::testing::Ge(6)));
  c->trainer->finish_checkpoint(std::chrono::minutes(1));
  EXPECT_THAT(checkpoints(),
              AllOf(::testing::Contains(fmt::format("checkpoint-{}", state_sent_.front())),
                    ::testing::Not(::testing::Contains("checkpoint-4"))));
}

// An evaluation that is due before the next step needs the weights of all, a checkpoint does not.
TEST_F(BackgroundTransferTest, DoesNotDelayAnEvaluation) {
  job_ = make_job({"--do_train", "--do_eval", "--eval_strategy=steps", "--eval_steps=2"});
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  const std::vector<std::string> ended = train_with({a.get(), b.get()}, [](std::size_t) {
    TrainerHooks hooks;
    hooks.before_evaluation = [] { throw Failure(ExitCode::kPeerLost, "a worker joins"); };
    return hooks;
  });
  EXPECT_THAT(ended, ::testing::Each(::testing::Not(IsEmpty())));
  EXPECT_EQ(a->trainer->position().step, 2);
  collectives::expect_no_errors(run_epoch({c.get(), a.get(), b.get()}, 3));
  EXPECT_FALSE(in_background_);
}

// Only the flags of rank 0 decide when a checkpoint is written.
TEST_F(BackgroundTransferTest, WorkersMayHaveOtherSaveSteps) {
  const std::vector<float> expected = undisturbed();
  const Job often = make_job({"--save_strategy=steps", "--save_steps=1"});
  const auto a = make_worker(), b = std::make_unique<Worker>(often, *log_), c = make_worker();
  transfer_.share_per_step = 0.4;
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 2));
  collectives::expect_no_errors(run_epoch({a.get(), b.get(), c.get()}, 6));
  EXPECT_TRUE(in_background_);
  EXPECT_THAT(state_sent_, ::testing::ElementsAre(::testing::Ge(4)));
  EXPECT_TRUE(weights(*c) == expected);
}

// A rank that has not planned enough gradient buffers decides for all.
TEST_F(BackgroundTransferTest, WorkersMayHaveOtherMaxWorkers) {
  const std::vector<std::string> flags = {"--nominal_workers=1", "--per_device_train_batch_size=8",
                                          "--virtual_shards=8", "--max_steps=2"};
  const auto job_for = [&](const char* max_workers) {
    std::vector<std::string> all = flags;
    all.emplace_back(max_workers);
    return make_job(all);
  };
  const Job two = job_for("--max_workers=2"), four = job_for("--max_workers=4");
  std::vector<std::unique_ptr<Worker>> workers;
  for (const Job* job : {&two, &two, &four, &four}) {
    workers.push_back(std::make_unique<Worker>(*job, *log_));
  }
  elastic::StateAgreement agreement;
  agreement.senders = {0, 1, 2};
  agreement.receivers = {3};
  std::vector<int> said(4, -1);
  collectives::expect_no_errors(collectives::run_ranks(4, [&](collectives::Mesh& mesh) {
    const auto rank = static_cast<std::size_t>(mesh.rank());
    Trainer& trainer = *workers[rank]->trainer;
    said[rank] = trainer.trains_without_receivers(mesh, agreement) ? 1 : 0;
  }));
  EXPECT_EQ(said, std::vector<int>(4, 0));
}

// Of the words that only other examples have, a step changes the weights by their moments.
TEST_F(BackgroundTransferTest, RowsOfWordsArriveAfterStepsThatDoNotHaveThem) {
  {
    std::ofstream rows(directory_.path() / "more_rows.json");
    for (const auto& row : golden_.at("rows")) rows << row.dump() << "\n";
    for (const char* sentence : {"good", "bad", "small", "b c", "d e", "f g", "h i", "x y"}) {
      rows << nlohmann::json{{"sentence1", sentence}, {"sentence2", sentence}, {"label", "LABEL_1"}}
                  .dump()
           << "\n";
    }
  }
  const std::string more_rows = "--train_file=" + (directory_.path() / "more_rows.json").string();
  // A pass over the data has three steps. The rest arrives in a step, before an evaluation or
  // before an end of the epoch.
  struct Variant {
    double share_per_step;
    std::vector<std::string> flags;
    std::int64_t last_step;
    std::vector<int> next;  // 0: a, 1: b, 2: c
  };
  const std::vector<std::string> evaluates = {"--do_train", "--do_eval", "--eval_strategy=steps",
                                              "--eval_steps=8"};
  for (const Variant& variant : {Variant{0.5, {}, 39, {2}}, Variant{0.01, evaluates, 39, {2}},
                                 Variant{0.01, {}, 8, {2, 1}}}) {
    std::vector<std::string> flags = variant.flags;
    flags.insert(flags.end(), {"--max_steps=40", more_rows});
    job_ = make_job(flags);
    const auto one = make_worker();
    collectives::expect_no_errors(run_epoch({one.get()}, 40));
    const auto a = make_worker(), b = make_worker(), c = make_worker();
    transfer_.share_per_step = variant.share_per_step;
    collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 7));
    state_sent_.clear();
    collectives::expect_no_errors(run_epoch({c.get(), a.get(), b.get()}, variant.last_step));
    EXPECT_THAT(state_sent_, ::testing::ElementsAre(variant.share_per_step < 0.1
                                                        ? ::testing::Matcher<std::int64_t>(8)
                                                        : ::testing::Ge(9)));
    std::vector<Worker*> next;
    for (const int index : variant.next) next.push_back((index == 1 ? b : c).get());
    collectives::expect_no_errors(run_epoch(next, 40));
    EXPECT_TRUE(weights(*c) == weights(*one));
    EXPECT_TRUE(c->trainer->save_state().exp_avg == one->trainer->save_state().exp_avg);
  }
}

// The receiver learns of it in the same step.
TEST_F(BackgroundTransferTest, AllWorkersLearnThatTheTrainingDiverges) {
  job_ = make_job(kDiverging);
  const auto one = make_worker();
  const std::string expected = run_epoch({one.get()}, 60).front();
  EXPECT_THAT(expected, HasSubstr("expected a finite number"));
  const std::int64_t last_step = one->trainer->step();
  ASSERT_GT(last_step, 2);
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  transfer_.share_per_step = 0.01;
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, last_step));
  const std::vector<std::string> errors = run_epoch({c.get(), a.get(), b.get()}, 60);
  EXPECT_TRUE(in_background_);
  EXPECT_EQ(errors, std::vector<std::string>(3, expected));
}

// A receiver that must stop and does not get the state in time; the others have lost nothing.
TEST_F(BackgroundTransferTest, AReceiverLeavesInAStep) {
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  transfer_.share_per_step = 0.1;
  transfer_.leave_after = {};
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 2));
  const std::vector<std::string> errors = train_with_requests(
      {a.get(), b.get(), c.get()}, {StopRequest::kNone, StopRequest::kNone, StopRequest::kLeave});
  EXPECT_THAT(errors, ::testing::Each(::testing::Not(IsEmpty())));
  EXPECT_THAT(errors[2], HasSubstr("this worker leaves before it has the state"));
  EXPECT_EQ(a->trainer->position().step, 2);
}

TEST_F(BackgroundTransferTest, AReceiverThatHasTheStateInTimeLeavesLikeTheOthers) {
  job_ = make_job({"--max_steps=40"});
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  transfer_.share_per_step = 0.3;
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 2));
  collectives::expect_no_errors(train_with_requests(
      {a.get(), b.get(), c.get()}, {StopRequest::kNone, StopRequest::kNone, StopRequest::kLeave}));
  EXPECT_TRUE(c->trainer->position().complete());
}

// If the rest takes too long for workers that leave. Rank 0 can write the state at once; if it has
// none, another worker does after the end of the epoch.
TEST_F(BackgroundTransferTest, IsAbandonedIfWorkersThatHaveTheStateLeave) {
  transfer_.share_per_step = 0.1;
  using enum StopRequest;
  struct Variant {
    std::vector<StopRequest> requests;  // of a, b and c
    bool rank0_sends;
    bool evaluates;
    bool in_time;
  };
  for (const Variant& variant : {Variant{{kLeave, kLeave, kNone}, true, false, true},
                                 Variant{{kLeave, kLeave, kNone}, true, false, false},
                                 Variant{{kLeave, kLeave, kNone}, false, false, true},
                                 Variant{{kLeave, kLeave, kNone}, false, false, false},
                                 Variant{{kLeave, kNone, kNone}, true, false, false},
                                 Variant{{kLeave, kNone, kNone}, true, true, false}}) {
    job_ = variant.evaluates
               ? make_job({"--do_train", "--do_eval", "--eval_strategy=steps", "--eval_steps=3"})
               : make_job();
    transfer_.leave_after = variant.in_time ? std::chrono::minutes(1) : Duration{};
    const auto a = make_worker(), b = make_worker(), c = make_worker();
    collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 2));
    std::vector<Worker*> workers = {a.get(), b.get(), c.get()};
    std::vector<StopRequest> requests = variant.requests;
    if (!variant.rank0_sends) {
      std::ranges::reverse(workers);
      std::ranges::reverse(requests);
    }
    const std::vector<std::string> errors = train_with_requests(workers, requests);
    if (variant.in_time || (variant.rank0_sends && !variant.evaluates)) {
      collectives::expect_no_errors(errors);
    } else {
      EXPECT_THAT(errors, ::testing::Each(HasSubstr("workers leave before all have the state")));
    }
    EXPECT_EQ(a->trainer->position().step, 3);
    EXPECT_TRUE(b->trainer->can_save());
    EXPECT_EQ(c->trainer->position().complete(), variant.in_time);
  }
}

// Rank 0 is lost after an evaluation and before it has written the best model; its replacement is
// to.
TEST_F(BackgroundTransferTest, DoesNotDelayTheCheckpointOfTheBestModel) {
  job_ = make_job({"--do_train", "--do_eval", "--eval_strategy=steps", "--eval_steps=3",
                   "--save_strategy=steps", "--save_steps=3", "--load_best_model_at_end"});
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  const std::vector<std::string> ended = train_with({a.get(), b.get()}, [](std::size_t) {
    TrainerHooks hooks;
    hooks.on_evaluation = [](const EvaluationResult&) {
      throw Failure(ExitCode::kPeerLost, "rank 0 is lost");
    };
    return hooks;
  });
  EXPECT_THAT(ended, ::testing::Each(::testing::Not(IsEmpty())));
  c->trainer->set_output(checkpoint::acquire_output_dir(output_, {"uid-1", 1}));
  collectives::expect_no_errors(run_epoch({c.get(), a.get(), b.get()}, 4));
  EXPECT_FALSE(in_background_);
  EXPECT_THAT(checkpoints(), ::testing::Contains("checkpoint-3"));
}

// At a step that writes a checkpoint while a rank has no weights.
TEST_F(BackgroundTransferTest, RanksDoNotDifferAboutInfiniteWeights) {
  set_weights("classifier.weight", {1e35f});
  std::vector<std::string> flags = kDiverging;
  flags.emplace_back("--save_steps=1");
  job_ = make_job(flags);
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  a->trainer->set_output(checkpoint::acquire_output_dir(output_, {"uid-1", 1}));
  transfer_.share_per_step = 0.01;
  const std::vector<std::string> ended = train_with({a.get(), b.get()}, [](std::size_t) {
    TrainerHooks hooks;
    hooks.stop_requested = [] {
      throw Failure(ExitCode::kPeerLost, "a worker joins");
      return StopRequest::kNone;
    };
    return hooks;
  });
  EXPECT_THAT(ended, ::testing::Each(::testing::Not(IsEmpty())));
  EXPECT_EQ(a->trainer->position().step, 0);
  const std::vector<std::string> errors = run_epoch({a.get(), b.get(), c.get()}, 60);
  EXPECT_TRUE(in_background_);
  EXPECT_THAT(errors, ::testing::Each(HasSubstr("expected a finite number")));
  EXPECT_EQ(errors[2], errors[0]);
}

// A worker that has had only a part begins again, and the others are where they were.
TEST_F(BackgroundTransferTest, ALossLeavesAReceiverWithoutAState) {
  const std::vector<float> expected = undisturbed();
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 2));
  // When rank 1 would have sent its part.
  const std::vector<std::string> errors =
      run_epoch_that_kills_rank1({a.get(), b.get(), c.get()}, [](collectives::Mesh& mesh) {
        std::vector<std::byte> bytes(512);
        collectives::BackgroundCopy copy(*mesh.background(), {0, 1}, {2}, {bytes},
                                         std::chrono::seconds(60), 512);
        for (int window = 0; window < 3; ++window) copy.close_window();
      });
  // Which of the others they name depends on who notices first.
  EXPECT_THAT(errors, ::testing::Each(::testing::Not(IsEmpty())));
  EXPECT_FALSE(c->trainer->position().complete());
  EXPECT_EQ(a->trainer->position().step, 2);
  collectives::expect_no_errors(run_epoch({c.get(), a.get()}, 6, {}, true));
  EXPECT_TRUE(weights(*c) == expected);
}

// Its loss would cost all steps that it trains alone.
TEST_F(BackgroundTransferTest, IsNotForTheStateOfASingleWorker) {
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  collectives::expect_no_errors(run_epoch({a.get()}, 2));
  collectives::expect_no_errors(run_epoch({a.get(), b.get(), c.get()}, 3));
  EXPECT_FALSE(in_background_);
}

// Sums of other shards have other bits.
TEST_F(BackgroundTransferTest, IsOnlyForExactSums) {
  job_ = make_job({"--exact=false"});
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 2));
  collectives::expect_no_errors(run_epoch({a.get(), b.get(), c.get()}, 4));
  EXPECT_FALSE(in_background_);
  EXPECT_TRUE(weights(*a) == weights(*c));
}

// The mappings of memory that processes share: of gradients, and of the links of a mesh.
int shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("/memfd:tilewright-") != std::string::npos ? 1 : 0;
  }
  return count;
}

// Otherwise a process that is frozen later, or waits for others, keeps those of all its peers.
TEST_F(MemoryTest, SharedGradientsAreHeldUntilTheEpochEnds) {
  collectives::tested_links = collectives::SharedMemory::kRequired;
  for (const bool fails : {false, true}) {
    collectives::expect_no_errors(collectives::run_ranks(2, [&](collectives::Mesh& mesh) {
      const auto barrier = [&] { collectives::barrier(mesh, collectives::test_deadline()); };
      const auto worker = make_worker();
      Trainer& trainer = *worker->trainer;
      trainer.begin_epoch(mesh);
      trainer.restore(mesh, {});
      barrier();
      const int before = shared_mappings();
      barrier();
      TrainerHooks hooks;
      hooks.on_step = [&](const StepReport&, const Rates&) {
        barrier();
        EXPECT_EQ(shared_mappings(), before + 4) << "each rank has its own and those of the other";
        // A program with sanitizers holds more than it needs, which the demand does not count.
        const MemoryDemand demand = trainer.memory_demand();
        EXPECT_GE(demand.held, std::min(demand.need, runtime::anonymous_rss() +
                                                         trainer.memory_estimate().gradients / 2));
        barrier();
        if (fails) throw Failure(ExitCode::kPeerLost, "the test ends the epoch");
      };
      try {
        trainer.train(mesh, hooks);
        EXPECT_FALSE(fails);
      } catch (const Failure& failure) {
        EXPECT_TRUE(fails) << failure.what();
      }
      barrier();
      EXPECT_EQ(shared_mappings(), before);
      barrier();
    }));
  }
  collectives::tested_links = collectives::SharedMemory::kNever;
}

// With the dropout of the model's config.json.
TEST_F(MemoryTest, GradientCheckpointingSavesMemoryAndDoesNotChangeTheWeights) {
  const std::vector<float> expected = undisturbed();
  const std::uint64_t all = make_worker()->trainer->memory_estimate().activations;
  job_ = make_job({"--gradient_checkpointing"});
  EXPECT_TRUE(undisturbed() == expected);
  EXPECT_LT(make_worker()->trainer->memory_estimate().activations, all);
}

TEST_F(MemoryTest, AWorkerThatHasMissedStepsGetsThem) {
  const std::vector<float> expected = undisturbed();
  const auto frozen = make_worker(), other = make_worker();
  collectives::expect_no_errors(run_epoch({frozen.get(), other.get()}, 2));
  collectives::expect_no_errors(run_epoch({other.get()}, 4));
  EXPECT_EQ(frozen->trainer->step(), 2);
  collectives::expect_no_errors(run_epoch({frozen.get(), other.get()}, 6));
  EXPECT_THAT(agreement_.receivers, ::testing::ElementsAre(0));
  EXPECT_TRUE(weights(*frozen) == expected);
}

// Rank 1 leaves in the middle of the transfer: the receiver has none, and begins again with rank 0.
TEST_F(MemoryTest, AStateReceivedInPartIsNone) {
  const std::vector<float> expected = undisturbed();
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 3));
  const std::vector<std::string> errors =
      run_epoch_that_kills_rank1({a.get(), b.get(), c.get()}, [](collectives::Mesh&) {});
  EXPECT_THAT(errors[1], HasSubstr("killed"));
  EXPECT_THAT(errors[2], HasSubstr("rank 1"));
  EXPECT_FALSE(c->trainer->position().complete());
  EXPECT_EQ(a->trainer->position().step, 3);
  collectives::expect_no_errors(run_epoch({c.get(), a.get()}, 6, {}, true));
  EXPECT_TRUE(weights(*c) == expected);
  EXPECT_EQ(c->trainer->recovery_counts().recoveries, 1);
  // Rank 0 may have begun the next step before it noticed.
  EXPECT_LE(c->trainer->recovery_counts().steps_lost, 1);
}

// b has not come as far as a in an epoch that has sent the state to c and broke then.
TEST_F(MemoryTest, AStateThatWasSentIsStillThatOfItsEpoch) {
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 2));
  const elastic::StateAgreement agreement = agree({a.get(), c.get()});
  ++collectives::tested_epoch;
  collectives::expect_no_errors(collectives::run_ranks(2, [&](collectives::Mesh& mesh) {
    Trainer& trainer = mesh.rank() == 0 ? *a->trainer : *c->trainer;
    trainer.begin_epoch(mesh);
    EXPECT_TRUE(trainer.restore(mesh, {false, -1, agreement, false}).from_memory);
  }));
  EXPECT_THAT(agree({a.get(), b.get(), c.get()}).senders, ::testing::ElementsAre(0, 1, 2));
}

// Rank 0 has read a newer checkpoint and loses the others before they have it.
TEST_F(MemoryTest, ACheckpointThatHasNotReachedTheOthersIsNoState) {
  const std::vector<float> expected = undisturbed();
  const auto writer = make_worker(), a = make_worker(), b = make_worker();
  collectives::expect_no_errors(run_epoch({writer.get()}, 4));
  writer->trainer->set_output(checkpoint::acquire_output_dir(output_, {"uid-1", 1}));
  writer->trainer->save_checkpoint(1);
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 2));
  const std::vector<elastic::StateReport> reports(2, {"settings", a->trainer->position(), -1});
  const std::vector<std::string> errors = collectives::run_ranks(2, [&](collectives::Mesh& mesh) {
    Worker& worker = mesh.rank() == 0 ? *a : *b;
    worker.trainer->begin_epoch(mesh);
    mesh.abort("a worker was lost");
    worker.trainer->restore(mesh, {true, 4, elastic::agree_on_state(reports, 4), true});
  });
  EXPECT_THAT(errors, ::testing::Each(HasSubstr("a worker was lost")));
  EXPECT_EQ(a->trainer->step(), 4);
  EXPECT_FALSE(a->trainer->position().complete());
  EXPECT_EQ(b->trainer->position().step, 2);
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 6));
  EXPECT_TRUE(weights(*a) == expected);
}

// Also if it is asked for while a step runs, which then is the last one.
TEST_F(MemoryTest, StopsAfterTheStepInWhichItIsAsked) {
  const auto one = make_worker();
  const std::filesystem::path signal = directory_.path() / "signal";
  std::ofstream(signal) << "pending";
  one->faults = Faults::parse("step.begin@2,once=" + signal.string() + ",delay=1").value();
  const auto mesh = collectives::Mesh::single_rank();
  one->trainer->begin_epoch(*mesh);
  one->trainer->restore(*mesh, {});
  TrainerHooks hooks;
  hooks.stop_requested = [&] {
    return std::filesystem::exists(signal) ? StopRequest::kNone : StopRequest::kStop;
  };
  EXPECT_EQ(one->trainer->train(*mesh, hooks), Outcome::kStopped);
  EXPECT_EQ(one->trainer->step(), 3) << "steps are counted from 0 in faults";
}

TEST_F(MemoryTest, AllWorkersKnowHowManyLeave) {
  const auto a = make_worker(), b = make_worker(), c = make_worker();
  const std::vector<Worker*> workers = {a.get(), b.get(), c.get()};
  std::vector<elastic::StateReport> reports(3, {"settings", a->trainer->position(), -1});
  std::vector<std::vector<int>> leaving(3);
  collectives::expect_no_errors(collectives::run_ranks(3, [&](collectives::Mesh& mesh) {
    const auto rank = static_cast<std::size_t>(mesh.rank());
    Trainer& trainer = *workers[rank]->trainer;
    trainer.begin_epoch(mesh);
    trainer.restore(mesh, {false, -1, elastic::agree_on_state(reports, -1), false});
    TrainerHooks hooks;
    hooks.stop_requested = [&] {
      if (trainer.step() < 2) return StopRequest::kNone;
      return rank == 0 ? StopRequest::kStop : StopRequest::kLeave;
    };
    hooks.on_step = [&](const StepReport& report, const Rates&) {
      leaving[rank].push_back(report.stop_requested ? report.leaving : -1);
    };
    EXPECT_EQ(trainer.train(mesh, hooks), Outcome::kStopped);
  }));
  EXPECT_EQ(leaving, std::vector<std::vector<int>>(3, {-1, -1, 2}));
}

// The mesh breaks during a step: nothing of it is in the state.
TEST_F(MemoryTest, ABrokenStepChangesNothing) {
  const std::vector<float> expected = undisturbed();
  const auto a = make_worker(), b = make_worker();
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 2));
  const std::vector<float> before = weights(*a);
  std::vector<elastic::StateReport> reports(2, {"settings", a->trainer->position(), -1});
  const std::vector<std::string> errors = collectives::run_ranks(2, [&](collectives::Mesh& mesh) {
    Trainer& trainer = mesh.rank() == 0 ? *a->trainer : *b->trainer;
    trainer.begin_epoch(mesh);
    trainer.restore(mesh, {false, -1, elastic::agree_on_state(reports, -1), false});
    TrainerHooks hooks;
    hooks.stop_requested = [&] {
      if (mesh.rank() == 1) throw Failure(ExitCode::kPeerLost, "killed");
      return StopRequest::kNone;
    };
    trainer.train(mesh, hooks);
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1"));
  EXPECT_TRUE(weights(*a) == before);
  EXPECT_EQ(a->trainer->position().step, 2);
  collectives::expect_no_errors(run_epoch({a.get()}, 6, {}, true));
  EXPECT_TRUE(weights(*a) == expected);
  EXPECT_EQ(a->trainer->recovery_counts().recoveries, 1);
  EXPECT_EQ(a->trainer->recovery_counts().steps_lost, 1);
}

// A window of the balancer is five steps, of 200 ms on the slow worker, which keeps one shard after
// three windows.
TEST_F(MemoryTest, ShardsMoveAwayFromASlowWorkerWithTheSameWeights) {
  job_ = make_job({"--max_steps=40"});
  const auto one = make_worker();
  collectives::expect_no_errors(run_epoch({one.get()}, 34));
  const auto a = make_worker(), b = make_worker();
  a->set_time_of_shard(std::chrono::milliseconds(10));
  b->set_time_of_shard(std::chrono::milliseconds(100));
  speeds_.clear();
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 30));
  ASSERT_EQ(speeds_.size(), 2);
  EXPECT_EQ(speeds_[0].split, collectives::even_split(2, 4));
  EXPECT_EQ(speeds_[1].split, (std::vector<collectives::Range>{{0, 3}, {3, 4}}));
  EXPECT_TRUE(speeds_[1].speeds[1].slow);
  EXPECT_FLOAT_EQ(static_cast<float>(speeds_[1].speeds[1].seconds), 0.2F);
  EXPECT_FLOAT_EQ(static_cast<float>(speeds_[1].speeds[1].others_seconds), 0.02F);
  collectives::expect_no_errors(run_epoch({a.get(), b.get()}, 34));
  ASSERT_EQ(speeds_.size(), 3) << "the next epoch is too short to notice the slow worker";
  EXPECT_EQ(speeds_[2].split, collectives::even_split(2, 4));
  EXPECT_TRUE(weights(*a) == weights(*one));
  EXPECT_TRUE(weights(*b) == weights(*one));
}

// Without exact there may be more workers than virtual shards, and than examples in a step: the
// last step of an epoch has one.
TEST_F(MemoryTest, AnInexactTrainingHasAnyNumberOfWorkers) {
  job_ = make_job({"--exact=false", "--nominal_workers=3", "--per_device_train_batch_size=1"});
  ASSERT_EQ(job_.settings.virtual_shards, 2);
  const auto one = make_worker(), a = make_worker(), b = make_worker(), c = make_worker();
  collectives::expect_no_errors(run_epoch({one.get()}, 6));
  collectives::expect_no_errors(run_epoch({a.get(), b.get(), c.get()}, 6));
  const auto& expected = one->trainer->state().log_history;
  const auto& history = a->trainer->state().log_history;
  ASSERT_EQ(history.size(), 6U) << history.dump();
  for (std::size_t i = 0; i < history.size(); ++i) {
    // Gradients differ by rounding, by some 1e-6 of their values.
    EXPECT_NEAR(history[i].at("loss"), expected.at(i).at("loss"), 1e-5) << i;
  }
}

// Only a training that is not exact changes its instruction set, and with it the trainer.
TEST_F(MemoryTest, AnotherTrainerContinuesFromASavedState) {
  const std::vector<float> expected = undisturbed();
  const auto first = make_worker(), second = make_worker();
  collectives::expect_no_errors(run_epoch({first.get()}, 4));
  second->trainer->load_state(first->trainer->save_state());
  EXPECT_EQ(second->trainer->position().step, 4);
  collectives::expect_no_errors(run_epoch({second.get()}, 6));
  EXPECT_TRUE(weights(*second) == expected);
}

}  // namespace
}  // namespace tilewright::train
