#include "worker/train/settings.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "common/base/result.h"
#include "common/contract/tasks.h"

namespace tilewright::train {
namespace {

using runtime::Isa;

std::string refusal(bool bf16, Isa isa) {
  Settings settings;
  settings.gemm_backend = "onednn";
  settings.bf16 = bf16;
  try {
    check_gemm_backend(settings, isa);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUnsupported);
    return failure.what();
  }
  return "";
}

TEST(GemmBackend, OneDnnIsRefusedIfItHasNoKernels) {
  EXPECT_EQ(refusal(true, Isa::kAvx2),
            "--gemm_backend=onednn: found bf16 on avx2, for which oneDNN has no kernels, expected "
            "--bf16=false, --gemm_backend=native or TILEWRIGHT_ISA=avx512 or above");
  EXPECT_EQ(refusal(true, Isa::kRef),
            "--gemm_backend=onednn: found bf16 on ref, for which oneDNN has no kernels, expected "
            "--gemm_backend=native or TILEWRIGHT_ISA=avx512 or above");
  EXPECT_EQ(refusal(false, Isa::kRef),
            "--gemm_backend=onednn: found fp32 on ref, for which oneDNN has no kernels, expected "
            "--gemm_backend=native or TILEWRIGHT_ISA=avx2 or above");
}

TEST(GemmBackend, OneDnnIsAcceptedIfItHasKernels) {
  EXPECT_EQ(refusal(false, Isa::kAvx2), "");
  EXPECT_EQ(refusal(true, Isa::kAvx512), "");
  EXPECT_EQ(refusal(true, Isa::kAmx), "");
}

TEST(GemmBackend, NativeRunsEverywhere) {
  Settings settings;
  settings.gemm_backend = "native";
  settings.bf16 = true;
  check_gemm_backend(settings, Isa::kRef);
}

Settings resolve(std::vector<std::string> words, const Machine& machine = {}) {
  words.insert(words.begin(), {"--model_name_or_path=m", "--output_dir=o"});
  if (std::ranges::none_of(words, [](const std::string& word) {
        return word.starts_with("--task_name") || word.starts_with("--dataset_name");
      })) {
    words.insert(words.end(), {"--task_name=mrpc", "--data_dir=d"});
  }
  return make_settings(TrainingArguments::parse(words).or_throw(), machine);
}

TEST(Settings, TakeTheTaskOfTheModelIfNothingElseNamesOne) {
  const auto task_of = [](std::vector<std::string> words, const std::string& model_task) {
    words.insert(words.end(), {"--model_name_or_path=m", "--output_dir=o"});
    return make_settings(TrainingArguments::parse(words).or_throw(),
                         {.model_task = {.finetuning_task = model_task}})
        .task_name;
  };
  EXPECT_EQ(task_of({"--do_eval"}, "mrpc"), "mrpc");
  EXPECT_EQ(task_of({"--do_predict"}, "SST-2"), "sst2");
  EXPECT_EQ(task_of({"--do_eval", "--task_name=rte"}, "mrpc"), "rte");
  EXPECT_EQ(task_of({"--do_eval", "--dataset_name=squad"}, "mrpc"), "squad");
  EXPECT_EQ(task_of({"--do_eval", "--validation_file=a.csv"}, "mrpc"), "");
  EXPECT_THROW(task_of({"--do_train"}, "mrpc"), Failure);
  EXPECT_THROW(task_of({"--do_eval"}, "my-task"), Failure);
}

// The defaults are those of run_qa.py then.
TEST(Settings, TakeQuestionAnsweringForFilesOfTheUsersOwn) {
  const auto settings_of = [](std::vector<std::string> words, const std::string& question_file) {
    words.insert(words.end(), {"--model_name_or_path=m", "--output_dir=o", "--train_file=t.json",
                               "--validation_file=v.json"});
    return make_settings(
        TrainingArguments::parse(words).or_throw(),
        {.model_task = {.finetuning_task = "mrpc"}, .question_file = question_file});
  };
  Settings s = settings_of({}, "t.json");
  EXPECT_EQ(s.task_name, "squad");
  EXPECT_EQ(s.max_seq_length, 384);
  EXPECT_EQ(s.task_choice,
            "question answering, as with --task_name=squad: t.json has questions, contexts and "
            "answers");
  s = settings_of({"--version_2_with_negative", "--max_seq_length=200"}, "");
  EXPECT_EQ(s.task_name, "squad_v2");
  EXPECT_EQ(s.max_seq_length, 200);
  EXPECT_EQ(s.task_choice,
            "question answering, as with --task_name=squad_v2: --version_2_with_negative is a flag "
            "of run_qa.py");
  for (const char* flag : {"--doc_stride=128", "--n_best_size=20", "--max_answer_length=30",
                           "--null_score_diff_threshold=0", "--version_2_with_negative=False"}) {
    EXPECT_EQ(settings_of({flag}, "").task_name, "squad") << flag;
  }
  s = settings_of({}, "");
  EXPECT_EQ(s.task_name, "") << "a classification or regression";
  EXPECT_EQ(s.max_seq_length, 128);
  EXPECT_EQ(s.task_choice, "");
  s = settings_of({"--task_name=squad_v2"}, "t.json");
  EXPECT_EQ(s.task_name, "squad_v2");
  EXPECT_EQ(s.task_choice, "");
}

// A test file without answers does not look like question answering.
TEST(Settings, TakeQuestionAnsweringForAModelThatAnswersQuestions) {
  const auto settings_of = [](std::vector<std::string> words, bool answers_questions) {
    words.insert(words.end(), {"--model_name_or_path=m", "--output_dir=o"});
    return make_settings(TrainingArguments::parse(words).or_throw(),
                         {.model_task = {.answers_questions = answers_questions}});
  };
  const Settings s = settings_of({"--do_predict", "--test_file=t.jsonl"}, true);
  EXPECT_EQ(s.task_name, "squad");
  EXPECT_EQ(s.max_seq_length, 384);
  EXPECT_EQ(s.task_choice,
            "question answering, as with --task_name=squad: the model answers questions");
  EXPECT_EQ(settings_of({"--do_eval", "--validation_file=v.json"}, true).task_name, "squad");
  EXPECT_EQ(settings_of({"--do_predict", "--test_file=t.jsonl"}, false).task_name, "");
  EXPECT_EQ(
      settings_of({"--do_train", "--do_predict", "--train_file=t.csv", "--test_file=t.csv"}, true)
          .task_name,
      "")
      << "the training gives the model another head";
  EXPECT_THROW(settings_of({"--do_predict"}, true), Failure) << "no task and no file";
}

// Without the flags that resolve() adds.
std::string refusal_of_only(const std::vector<std::string>& words) {
  try {
    make_settings(TrainingArguments::parse(words).or_throw(), {});
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    return failure.what();
  }
  return "";
}

std::string refusal_of(const std::vector<std::string>& words, const Machine& machine = {}) {
  try {
    resolve(words, machine);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    return failure.what();
  }
  return "";
}

// do_train, do_eval, do_predict
using Actions = std::array<bool, 3>;
Actions actions(const std::vector<std::string>& words) {
  const Settings s = resolve(words);
  return {s.do_train, s.do_eval, s.do_predict};
}

TEST(Settings, DoOnlyWhatIsAskedFor) {
  EXPECT_EQ(actions({}), (Actions{true, true, false}));
  EXPECT_EQ(actions({"--do_train"}), (Actions{true, false, false}));
  EXPECT_EQ(actions({"--do_eval"}), (Actions{false, true, false}));
  EXPECT_EQ(actions({"--do_predict"}), (Actions{false, false, true}));
  EXPECT_EQ(actions({"--do_train", "--do_eval"}), (Actions{true, true, false}));
  EXPECT_EQ(actions({"--do_eval=false"}), (Actions{true, false, false}));
  EXPECT_EQ(actions({"--do_train=false"}), (Actions{false, true, false}));
  EXPECT_EQ(actions({"--do_train", "--eval_strategy=epoch"}), (Actions{true, true, false}));
  EXPECT_EQ(refusal_of({"--do_train=false", "--do_eval=false"}),
            "found --do_train=false and --do_eval=false, expected at least one of them, or "
            "--do_predict, true");
}

// run_glue.py ignores it and evaluates the model of model_name_or_path.
TEST(Settings, RefuseACheckpointToResumeFromWithoutATraining) {
  for (const char* action : {"--do_eval", "--do_predict"}) {
    EXPECT_EQ(refusal_of({action, "--resume_from_checkpoint=o/checkpoint-3"}),
              "found --resume_from_checkpoint without --do_train, expected a training; to evaluate "
              "or predict with a checkpoint, give it as --model_name_or_path");
    EXPECT_EQ(refusal_of({action, "--resume_from_checkpoint="}), "");
    EXPECT_EQ(refusal_of({action, "--do_train", "--resume_from_checkpoint=o/checkpoint-3"}), "");
  }
}

TEST(Settings, ComputeInBf16WhereTheCpuHasInstructionsForIt) {
  EXPECT_TRUE(resolve({}, {.has_bf16 = true}).bf16);
  EXPECT_FALSE(resolve({}, {.has_bf16 = false}).bf16);
  EXPECT_TRUE(resolve({"--bf16"}, {.has_bf16 = false}).bf16);
  EXPECT_FALSE(resolve({"--bf16=False"}, {.has_bf16 = true}).bf16);
  EXPECT_FALSE(has_bf16(std::array{Isa::kRef, Isa::kAvx2, Isa::kAvx512}));
  EXPECT_TRUE(has_bf16(std::array{Isa::kRef, Isa::kAvx512Bf16}));
  EXPECT_TRUE(has_bf16(runtime::kAllIsas));
}

TEST(Settings, DescribeTheDataTypeIfItIsNotAsAsked) {
  const auto described = [](const std::vector<std::string>& words, Isa isa) {
    const auto arguments = TrainingArguments::parse(words).or_throw();
    Settings settings{arguments.settings()};
    if (!arguments.is_set("bf16")) settings.bf16 = has_bf16(std::span(&isa, 1));
    return describe_data_type(arguments, settings, isa);
  };
  EXPECT_EQ(described({}, Isa::kAmx),
            "computing in bf16, for which this CPU has instructions; --bf16=false selects fp32");
  EXPECT_EQ(described({}, Isa::kAvx2),
            "computing in fp32: this CPU has no bf16 instructions; --bf16 selects bf16, emulated");
  EXPECT_EQ(
      described({"--bf16"}, Isa::kAvx512),
      "computing in bf16 as requested, emulated with avx512: this CPU has no bf16 instructions");
  EXPECT_EQ(described({"--bf16"}, Isa::kAvx512Bf16), "");
  EXPECT_EQ(described({"--bf16=false"}, Isa::kAvx2), "");
}

TEST(Settings, FollowTheBestModelAsTrainingArgumentsDo) {
  Settings s = resolve({"--load_best_model_at_end", "--eval_strategy=epoch"});
  EXPECT_EQ(s.metric_for_best_model, "eval_loss");
  EXPECT_FALSE(s.greater_is_better);
  EXPECT_TRUE(s.needs_best_model());
  s = resolve({"--load_best_model_at_end", "--eval_strategy=steps", "--logging_steps=7",
               "--metric_for_best_model=f1"});
  EXPECT_EQ(s.metric_for_best_model, "eval_f1");
  EXPECT_TRUE(s.greater_is_better);
  EXPECT_EQ(s.eval_steps, 7);
  s = resolve({"--metric_for_best_model=eval_f1", "--greater_is_better=false", "--eval_steps=3"});
  EXPECT_EQ(s.metric_for_best_model, "eval_f1");
  EXPECT_FALSE(s.greater_is_better);
  EXPECT_FALSE(s.needs_best_model());
  EXPECT_EQ(s.eval_steps, 3);
  EXPECT_EQ(refusal_of({"--load_best_model_at_end"}),
            "found --load_best_model_at_end with --eval_strategy=no, expected steps or epoch: the "
            "best model is found by evaluations during the training");
  EXPECT_EQ(
      refusal_of({"--load_best_model_at_end", "--eval_strategy=epoch", "--save_strategy=no"}),
      "found --load_best_model_at_end with --save_strategy=no, expected steps, epoch or best: "
      "the best model is loaded from a checkpoint");
  EXPECT_THAT(refusal_of({"--save_strategy=best"}),
              ::testing::StartsWith("found --save_strategy=best with --eval_strategy=no"));
}

// HF's rule is in training_args.py, TrainingArguments.__post_init__().
TEST(Settings, EvaluateEvery500StepsUnlessLoggingStepsIsSet) {
  EXPECT_EQ(resolve({"--eval_strategy=steps"}).eval_steps, 500);
  EXPECT_EQ(resolve({"--eval_strategy=steps"}).logging_steps, 10);
  EXPECT_EQ(resolve({"--eval_strategy=steps", "--logging_steps=0.2"}).eval_steps, 0.2);
  EXPECT_EQ(resolve({"--logging_steps=7"}).eval_steps, 500);
  EXPECT_EQ(resolve({"--eval_strategy=steps", "--logging_steps=7", "--eval_steps=3"}).eval_steps,
            3);
}

// As in the Trainer: optimization clips and checkpoints are removed only for values above 0.
TEST(Settings, TakeNegativeLimitsForNone) {
  const Settings s = resolve({"--max_grad_norm=-1", "--save_total_limit=-1"});
  EXPECT_EQ(s.max_grad_norm, 0);
  EXPECT_EQ(s.save_total_limit, 0);
  EXPECT_EQ(fingerprint(s), fingerprint(resolve({"--max_grad_norm=0", "--save_total_limit=0"})));
}

TEST(Settings, TakeTheTaskFromTheDataSetsName) {
  EXPECT_EQ(resolve({"--dataset_name=glue", "--dataset_config_name=RTE"}).task_name, "rte");
  EXPECT_EQ(resolve({"--dataset_name=nyu-mll/glue", "--dataset_config_name=sst2"}).task_name,
            "sst2");
  EXPECT_EQ(refusal_of({"--dataset_name=glue"}),
            fmt::format("--dataset_config_name: found nothing, expected the task of the data set "
                        "glue: one of {}",
                        fmt::join(glue_task_names(), ", ")));
  EXPECT_THAT(refusal_of({"--dataset_name=imdb"}),
              ::testing::AllOf(
                  ::testing::StartsWith("--dataset_name: found imdb, expected glue, or one of "),
                  ::testing::EndsWith("; for other data use train_file")));
}

TEST(Settings, RefuseADataSetOfAnotherTask) {
  EXPECT_EQ(refusal_of({"--dataset_name=squad", "--task_name=mrpc"}),
            "--dataset_name: found squad, expected a data set of the task mrpc");
  EXPECT_EQ(refusal_of({"--dataset_name=glue", "--dataset_config_name=sst2", "--task_name=mrpc"}),
            "--dataset_config_name: found sst2, expected a data set of the task mrpc");
  EXPECT_EQ(resolve({"--dataset_name=glue", "--task_name=MRPC"}).task_name, "mrpc");
  EXPECT_EQ(resolve({"--dataset_name=my/mirror", "--task_name=mrpc"}).task_name, "mrpc");
}

TEST(Settings, RefuseTwoSourcesOfTheData) {
  const auto refused = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--model_name_or_path=m", "--output_dir=o", "--data_dir=d"});
    return refusal_of_only(words);
  };
  EXPECT_EQ(refused({"--train_file=t.csv", "--validation_file=v.csv"}),
            "--data_dir: found d and --train_file, expected only one of them");
  EXPECT_EQ(refused({"--do_predict", "--test_file=t.csv"}),
            "--data_dir: found d and --test_file, expected only one of them");
  EXPECT_EQ(refused({"--dataset_name=squad"}),
            "--data_dir: found d and --dataset_name, expected only one of them");
  EXPECT_EQ(refused({"--task_name=squad", "--train_file=t.json"}), "")
      << "data_dir has the file to evaluate on";
}

TEST(Settings, NameAllFlagsThatAreMissing) {
  const std::string model(find_training_flag("model_name_or_path")->help);
  const std::string tasks = fmt::format("{}", fmt::join(task_names(), ", "));
  EXPECT_EQ(refusal_of_only({}),
            "--task_name is missing, expected one of " + tasks +
                ", --dataset_name, or files of your own with --train_file and --validation_file; "
                "--model_name_or_path is missing, expected the " +
                model +
                "; --output_dir is missing, expected the directory for checkpoints, the trained "
                "model and its results");
  EXPECT_EQ(refusal_of_only({"--do_predict", "--model_name_or_path=m", "--output_dir=o"}),
            "--task_name is missing, expected one of " + tasks +
                ", --dataset_name, a file of your own with --validation_file or --test_file, or a "
                "model whose config.json has its task as finetuning_task");
}

TEST(Settings, NameTheFilesOfTheUsersOwnThatAreMissing) {
  const auto refused = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--model_name_or_path=m", "--output_dir=o"});
    return refusal_of_only(words);
  };
  EXPECT_EQ(refused({"--train_file=t.csv"}),
            "--validation_file is missing, expected the file with the examples to evaluate on, or "
            "--do_train without --do_eval");
  EXPECT_EQ(refused({"--train_file=t.csv", "--do_train", "--eval_strategy=epoch"}),
            "--validation_file is missing, expected the file with the examples to evaluate on");
  EXPECT_EQ(refused({"--train_file=t.csv", "--do_train"}), "");
  EXPECT_EQ(refused({"--train_file=t.json", "--task_name=squad"}),
            "--validation_file is missing, expected the file with the examples to evaluate on, or "
            "--do_train without --do_eval");
  EXPECT_EQ(refused({"--validation_file=v.csv", "--do_predict"}),
            "--test_file is missing, expected the file with the examples to predict");
  EXPECT_EQ(refused({"--validation_file=v.csv", "--do_eval"}), "");
}

TEST(Settings, RefuseAMetricThatTheTaskDoesNotHave) {
  const auto refused = [](const std::string& task, const std::string& metric) {
    return refusal_of({"--task_name=" + task, "--data_dir=d", "--eval_strategy=epoch",
                       "--metric_for_best_model=" + metric});
  };
  EXPECT_EQ(refused("mrpc", "bleu"),
            "--metric_for_best_model: found bleu, expected one of loss, accuracy, f1, "
            "combined_score");
  EXPECT_EQ(refused("cola", "eval_f1"),
            "--metric_for_best_model: found eval_f1, expected one of loss, matthews_correlation");
  EXPECT_EQ(refused("squad", "exact"),
            "--metric_for_best_model: found exact, expected one of loss, exact_match, f1");
  for (const char* metric : {"loss", "eval_loss", "accuracy", "eval_combined_score"}) {
    EXPECT_EQ(refused("mrpc", metric), "") << metric;
  }
  EXPECT_EQ(refused("squad_v2", "best_f1"), "");
  EXPECT_EQ(refused("mnli", "accuracy"), "");
  EXPECT_EQ(refusal_of({"--metric_for_best_model=bleu"}), "") << "no evaluation uses it";
}

// load_job() does, because the labels say whether the files are a regression.
TEST(Settings, CheckTheMetricOfTheUsersOwnFiles) {
  Settings settings;
  settings.eval_strategy = "epoch";
  EXPECT_NO_THROW(check_metric(settings, "eval_mse", {"mse"}));
  EXPECT_NO_THROW(check_metric(settings, "", {"mse"}));
  EXPECT_THROW(check_metric(settings, "accuracy", {"mse"}), Failure);
}

TEST(Settings, SayWhereTheNumberOfVirtualShardsIsFrom) {
  EXPECT_EQ(refusal_of({"--virtual_shards=3"}),
            "--virtual_shards: found 3 virtual shards, expected a power of two (1, 2, 4, ...)");
  EXPECT_THAT(refusal_of({}, {.virtual_shards = 3}),
              ::testing::StartsWith("TILEWRIGHT_VIRTUAL_SHARDS: found 3 "));
}

TEST(Settings, SayWhichBatchIsTooSmallForTheProcesses) {
  const auto refused = [](std::vector<std::string> words, std::int64_t processes) {
    words.emplace_back("--per_device_train_batch_size=1");
    return refusal_of(words, {.world = processes});
  };
  EXPECT_EQ(refused({}, 3),
            "found 3 processes for a global batch of 3 examples (--per_device_train_batch_size 1 x "
            "3 processes x --gradient_accumulation_steps 1), expected at most 2 processes, or "
            "larger values of these flags");
  EXPECT_EQ(refused({"--gradient_accumulation_steps=2", "--max_workers=16"}, 5),
            "found 16 processes for a global batch of 10 examples (--per_device_train_batch_size 1 "
            "x 5 processes x --gradient_accumulation_steps 2), expected at most 8 processes, or "
            "larger values of these flags");
  for (const std::int64_t processes : {2, 3, 4, 5, 6, 7, 8, 12}) {
    EXPECT_EQ(refused({"--gradient_accumulation_steps=2"}, processes), "") << processes;
    EXPECT_EQ(refused({"--exact=false"}, processes), "") << processes;
    EXPECT_EQ(refused({"--do_eval"}, processes), "") << processes;
  }
}

TEST(Settings, OnlyAnEvaluationNeedsNoOutputDirectory) {
  const auto code = [](const std::vector<std::string>& words) {
    std::vector<std::string> all = {"--model_name_or_path=m", "--task_name=mrpc", "--data_dir=d"};
    all.insert(all.end(), words.begin(), words.end());
    try {
      make_settings(TrainingArguments::parse(all).or_throw(), {});
    } catch (const Failure& failure) {
      EXPECT_EQ(
          std::string(failure.what()),
          "--output_dir is missing, expected the directory for checkpoints, the trained model "
          "and its results");
      return failure.code();
    }
    return ExitCode::kOk;
  };
  EXPECT_EQ(code({"--do_eval"}), ExitCode::kOk);
  EXPECT_EQ(code({"--do_train"}), ExitCode::kUsage);
  EXPECT_EQ(code({"--do_predict"}), ExitCode::kUsage);
}

TEST(Settings, SeedTheOrderOfExamplesByDataSeed) {
  EXPECT_EQ(resolve({"--seed=3"}).data_seed, 3);
  EXPECT_EQ(resolve({"--seed=3", "--data_seed=0"}).data_seed, 0);
}

TEST(Settings, GroupByLengthAsTransformers5Names) {
  EXPECT_FALSE(resolve({"--train_sampling_strategy=random"}).group_by_length);
  const Settings grouped = resolve({"--train_sampling_strategy=group_by_length"});
  EXPECT_TRUE(grouped.group_by_length);
  EXPECT_EQ(fingerprint(grouped), fingerprint(resolve({"--group_by_length"})));
}

TEST(Fingerprint, HasWholeWarmUpStepsAsAnInteger) {
  const auto dumped = [](const std::string& flag) {
    return fingerprint(resolve({flag})).at("warmup_steps").dump();
  };
  EXPECT_EQ(dumped("--seed=1"), "0");
  EXPECT_EQ(dumped("--warmup_steps=100"), "100");
  EXPECT_EQ(dumped("--warmup_steps=0.1"), "0.1");
}

TEST(Fingerprint, DiffersBetweenPaddedAndPackedTraining) {
  Settings packed;
  Settings padded;
  padded.pad_to_max_length = true;
  EXPECT_NE(fingerprint(packed), fingerprint(padded));
}

// Each batch is padded to its longest example.
TEST(Fingerprint, HasTheBatchSizeOnlyIfTheLossCountsPadding) {
  const auto found = [](const std::string& flag, const std::string& batch) {
    return fingerprint(resolve(
        {"--task_name=squad", flag, "--gradient_accumulation_steps=" + batch,
         batch == "2" ? "--per_device_train_batch_size=4" : "--per_device_train_batch_size=8"}));
  };
  EXPECT_EQ(found("--loss_counts_padding=false", "2"), found("--loss_counts_padding=false", "1"));
  EXPECT_NE(found("--loss_counts_padding", "2"), found("--loss_counts_padding", "1"));
}

// So a training that ran out of memory can resume with it.
TEST(Fingerprint, IsTheSameWithGradientCheckpointing) {
  EXPECT_EQ(fingerprint(resolve({"--gradient_checkpointing"})), fingerprint(resolve({})));
}

// So a training can resume with an evaluation, which changes no weight.
TEST(Fingerprint, HasTheEvaluationOnlyIfItSelectsTheBestModel) {
  const std::vector<std::string> evaluated = {"--eval_strategy=steps", "--eval_steps=3",
                                              "--metric_for_best_model=f1"};
  EXPECT_EQ(fingerprint(resolve(evaluated)), fingerprint(resolve({})));
  EXPECT_NE(evaluation_fingerprint(resolve(evaluated)), evaluation_fingerprint(resolve({})));
  for (const char* flag : {"--load_best_model_at_end", "--save_strategy=best"}) {
    std::vector<std::string> best = evaluated;
    best.emplace_back(flag);
    const nlohmann::json found = fingerprint(resolve(best));
    EXPECT_EQ(found.at("eval_strategy"), "steps") << flag;
    EXPECT_EQ(found.at("eval_steps"), 3) << flag;
    EXPECT_EQ(found.at("metric_for_best_model"), "eval_f1") << flag;
    EXPECT_EQ(found.at("greater_is_better"), true) << flag;
  }
}

TEST(Fingerprint, OfTheEvaluationSaysWhatIsDone) {
  const auto found = [](const std::string& flag) {
    return evaluation_fingerprint(resolve({"--do_train", flag}));
  };
  EXPECT_EQ(found("--do_eval").at("do_eval"), true);
  EXPECT_EQ(found("--do_eval=false").at("do_eval"), false);
  EXPECT_NE(found("--do_predict"), found("--do_predict=false"));
}

TEST(Fingerprint, NamesTheCommunicationHookOnlyIfItRoundsGradients) {
  EXPECT_EQ(fingerprint(resolve({"--ddp_comm_hook=no"})), fingerprint(resolve({})));
  EXPECT_FALSE(fingerprint(resolve({})).contains("ddp_comm_hook")) << "as in older checkpoints";
  EXPECT_NE(fingerprint(resolve({"--ddp_comm_hook=bf16"})), fingerprint(resolve({})));
}

}  // namespace
}  // namespace tilewright::train
