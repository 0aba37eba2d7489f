// The command lines of the CPU fine-tuning guides that start one process, word for word but for the
// program's name, against a hub with small weights and data under those names; then evaluation and
// prediction with what they trained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "common/base/exit_codes.h"
#include "tests/integration/hub_fixture.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr const char* kDistilBertSquad =
    "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc.so python run_qa.py --model_name_or_path "
    "distilbert-base-uncased --dataset_name squad --do_train --do_eval "
    "--per_device_train_batch_size 32 --num_train_epochs 1 --output_dir /tmp/debug_squad/ "
    "--use_ipex --bf16 --no_cuda";
constexpr const char* kBertSquad =
    "python run_qa.py --model_name_or_path google-bert/bert-base-uncased --dataset_name squad "
    "--do_train --do_eval --per_device_train_batch_size 12 --learning_rate 3e-5 "
    "--num_train_epochs 2 --max_seq_length 384 --doc_stride 128 --output_dir /tmp/debug_squad/ "
    "--use_ipex --bf16 --use_cpu";
constexpr const char* kMrpc =
    "python run_glue.py --model_name_or_path bert-base-cased --task_name mrpc --do_train --do_eval "
    "--max_seq_length 128 --per_device_train_batch_size 32 --learning_rate 2e-5 "
    "--num_train_epochs 3 --output_dir /tmp/mrpc/ --overwrite_output_dir True";
// "The same with --task_name qqp."
constexpr const char* kQqp =
    "python run_glue.py --model_name_or_path bert-base-cased --task_name qqp --do_train --do_eval "
    "--max_seq_length 128 --per_device_train_batch_size 32 --learning_rate 2e-5 "
    "--num_train_epochs 3 --output_dir /tmp/mrpc/ --overwrite_output_dir True";

const std::vector<std::string> kModelFiles = {"config.json", "model.safetensors", "vocab.txt"};
const std::vector<std::string> kResultFiles = {"all_results.json", "train_results.json",
                                               "eval_results.json", "trainer_state.json"};
const std::vector<std::string> kAnswerFiles = {"eval_predictions.json",
                                               "eval_nbest_predictions.json"};

// A command line as a shell reads it.
struct CommandLine {
  std::optional<testing::ScopedVariable> variable;  // an assignment before the program
  std::string arguments;                            // after "python SCRIPT"

  explicit CommandLine(const std::string& line) {
    std::vector<std::string> words = testing::split_words(line);
    if (const auto equals = words.front().find('='); equals != std::string::npos) {
      variable.emplace(words.front().substr(0, equals), words.front().substr(equals + 1));
      words.erase(words.begin());
    }
    EXPECT_EQ(words.at(0), "python");
    for (std::size_t i = 2; i < words.size(); ++i) arguments += words[i] + " ";
  }
};

class GuideCommand : public testing::HubTraining {
 protected:
  // Runs the command with the hub, then without network from the cache. Both train the same
  // weights.
  void train_twice(const char* line, const std::string& output) {
    const CommandLine command(line);
    ASSERT_EQ(run(command.arguments), 0) << output_;
    const std::string reference = digest();
    fs::remove_all(path(output));
    hub_.reset();
    const testing::ScopedVariable offline("HF_HUB_OFFLINE", "1");
    ASSERT_EQ(run(command.arguments), 0) << output_;
    EXPECT_EQ(digest(), reference);
    EXPECT_THAT(output_, ::testing::Not(HasSubstr("downloading")));
    EXPECT_THAT(files_of(output), IsSupersetOf(kModelFiles));
    EXPECT_THAT(files_of(output), IsSupersetOf(kResultFiles));
  }

  void expect_results(const std::string& output, const std::string& architecture,
                      const std::vector<std::string>& metrics, int steps) const {
    EXPECT_EQ(json(output + "/config.json").at("architectures"), nlohmann::json({architecture}));
    const nlohmann::json results = json(output + "/all_results.json");
    std::vector<std::string> names = metrics;
    for (const char* name :
         {"eval_loss", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second",
          "eval_samples", "train_loss", "train_runtime", "train_samples_per_second",
          "train_steps_per_second", "train_samples", "total_flos", "epoch"}) {
      names.emplace_back(name);
    }
    for (const std::string& name : names) {
      ASSERT_TRUE(results.contains(name)) << name << " in " << results;
      EXPECT_TRUE(results.at(name).is_number()) << name;
    }
    EXPECT_GT(results.at("train_loss"), 0);
    EXPECT_EQ(results.at("eval_samples"), 8);
    const nlohmann::json state = json(output + "/trainer_state.json");
    EXPECT_EQ(state.at("global_step"), steps);
    EXPECT_TRUE(state.at("log_history").back().contains("eval_loss") ||
                state.at("log_history").back().contains("train_loss"));
  }

  // Each question has one answer, which stands in its context and leads its n-best list.
  void expect_answers(const std::string& output, const std::string& prefix = "eval") const {
    const auto questions = nlohmann::json::parse(
        testing::read_text(testing::source_dir() / "examples/data/questions/dev-v1.1.json"));
    std::map<std::string, std::string> contexts;
    for (const auto& article : questions.at("data")) {
      for (const auto& paragraph : article.at("paragraphs")) {
        for (const auto& question : paragraph.at("qas")) {
          contexts[question.at("id")] = paragraph.at("context");
        }
      }
    }
    const nlohmann::json answers = json(output + "/" + prefix + "_predictions.json");
    const nlohmann::json best = json(output + "/" + prefix + "_nbest_predictions.json");
    ASSERT_FALSE(answers.empty());
    EXPECT_EQ(best.size(), answers.size());
    for (const auto& [id, answer] : answers.items()) {
      ASSERT_TRUE(contexts.contains(id)) << id;
      EXPECT_THAT(contexts.at(id), HasSubstr(answer.get<std::string>())) << id;
      const nlohmann::json& list = best.at(id);
      ASSERT_FALSE(list.empty()) << id;
      EXPECT_LE(list.size(), 20u) << id;
      double sum = 0;
      for (const auto& entry : list) {
        sum += entry.at("probability").get<double>();
        EXPECT_TRUE(entry.contains("start_logit") && entry.contains("end_logit")) << id;
      }
      EXPECT_NEAR(sum, 1, 1e-5) << id;
      EXPECT_EQ(list.front().at("text"), answer) << id;
    }
  }
};

TEST_F(GuideCommand, TrainsDistilBertOnSquad) {
  train_twice(kDistilBertSquad, "debug_squad");
  expect_results("debug_squad", "DistilBertForQuestionAnswering", {"eval_exact_match", "eval_f1"},
                 1);
  EXPECT_THAT(files_of("debug_squad"), IsSupersetOf(kAnswerFiles));
  EXPECT_EQ(json("debug_squad/eval_predictions.json").size(), 8u);
  expect_answers("debug_squad");
}

TEST_F(GuideCommand, TrainsBertOnSquadFromShards) {
  train_twice(kBertSquad, "debug_squad");
  expect_results("debug_squad", "BertForQuestionAnswering", {"eval_exact_match", "eval_f1"}, 4);
  EXPECT_THAT(files_of("debug_squad"), IsSupersetOf(kAnswerFiles));
  EXPECT_EQ(json("debug_squad/eval_predictions.json").size(), 8u);
  expect_answers("debug_squad");
}

TEST_F(GuideCommand, TrainsBertOnMrpcFromAPickledFile) {
  fs::create_directories(path("glue"));  // is not the data set, which the command does not name
  train_twice(kMrpc, "mrpc");
  expect_results("mrpc", "BertForSequenceClassification", {"eval_accuracy", "eval_f1"}, 6);
  const nlohmann::json config = json("mrpc/config.json");
  EXPECT_EQ(config.at("id2label"), nlohmann::json({{"0", "not_equivalent"}, {"1", "equivalent"}}));
  EXPECT_EQ(config.at("problem_type"), "single_label_classification");
}

TEST_F(GuideCommand, TrainsBertOnQqpFromAPickledFile) {
  train_twice(kQqp, "mrpc");
  expect_results("mrpc", "BertForSequenceClassification", {"eval_accuracy", "eval_f1"}, 6);
}

// The guide has --overwrite_output_dir True.
TEST_F(GuideCommand, TrainsTwoTasksIntoOneDirectory) {
  ASSERT_EQ(run(CommandLine(kMrpc).arguments), 0) << output_;
  EXPECT_EQ(run(CommandLine(kQqp).arguments), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("trained: 6 steps"));
}

TEST_F(GuideCommand, EvaluatesASavedModelOnBothPartsOfMnli) {
  ASSERT_EQ(run("--model_name_or_path bert-base-cased --task_name mnli --do_train --do_eval "
                "--max_seq_length 128 --output_dir /tmp/mnli/"),
            0)
      << output_;
  const nlohmann::json trained = json("mnli/all_results.json");
  const auto weights = fs::last_write_time(path("mnli/model.safetensors"));
  for (const char* name :
       {"eval_accuracy", "eval_accuracy_mm", "eval_loss", "eval_loss_mm", "epoch", "epoch_mm"}) {
    ASSERT_TRUE(trained.contains(name)) << trained;
  }
  EXPECT_NE(trained.at("eval_loss"), trained.at("eval_loss_mm"));
  EXPECT_EQ(trained.at("eval_samples_mm"), 8);
  ASSERT_EQ(run("--model_name_or_path mnli --task_name MNLI --do_eval --max_seq_length 128 "
                "--output_dir /tmp/evaluated"),
            0)
      << output_;
  const nlohmann::json evaluated = json("evaluated/all_results.json");
  for (const char* name : {"eval_accuracy", "eval_accuracy_mm", "eval_loss", "eval_loss_mm"}) {
    EXPECT_EQ(evaluated.at(name), trained.at(name)) << name;
  }
  EXPECT_FALSE(evaluated.contains("train_loss") || evaluated.contains("epoch"));
  EXPECT_FALSE(fs::exists(path("evaluated/model.safetensors")));
  EXPECT_EQ(fs::last_write_time(path("mnli/model.safetensors")), weights);
}

// The usual next command: the same with --do_eval, into the directory of the training.
TEST_F(GuideCommand, AnEvaluationLeavesTheTrainingInItsOutputDirectory) {
  const std::string mrpc =
      "--task_name mrpc --max_seq_length 128 --output_dir /tmp/mrpc --save_steps 1 ";
  ASSERT_EQ(run("--model_name_or_path bert-base-cased --do_train --max_steps 3 " + mrpc), 0)
      << output_;
  EXPECT_THAT(output_, HasSubstr("***** train metrics *****\n  epoch "));
  // The Trainer's checkpoints, also that of the last step.
  for (const char* name : {"checkpoint-2", "checkpoint-3"}) {
    EXPECT_TRUE(fs::exists(path("mrpc") / name)) << name;
  }
  const auto weights = testing::read_text(path("mrpc/model.safetensors"));
  for (const char* overwrite : {"", " --overwrite_output_dir True"}) {
    ASSERT_EQ(run("--model_name_or_path mrpc/checkpoint-3 --do_eval " + mrpc + overwrite), 0)
        << output_;
    EXPECT_THAT(output_, HasSubstr("***** eval metrics *****\n  eval_accuracy "));
    EXPECT_TRUE(fs::exists(path("mrpc/checkpoint-2")));
  }
  EXPECT_EQ(testing::read_text(path("mrpc/model.safetensors")), weights);
  const nlohmann::json results = json("mrpc/all_results.json");
  EXPECT_TRUE(results.contains("train_loss") && results.contains("eval_f1")) << results;
  // The same training again has nothing left to do.
  ASSERT_EQ(run("--model_name_or_path bert-base-cased --do_train --max_steps 3 " + mrpc), 0)
      << output_;
  EXPECT_THAT(output_, HasSubstr("checkpoint-3 (step 3 of 3)"));
  EXPECT_EQ(testing::read_text(path("mrpc/model.safetensors")), weights);
  EXPECT_EQ(run("--model_name_or_path mrpc/checkpoint-3 --do_train --overwrite_output_dir " + mrpc),
            static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(output_, HasSubstr("--overwrite_output_dir removes the checkpoints of "));
  EXPECT_TRUE(fs::exists(path("mrpc/checkpoint-3")));
}

TEST_F(GuideCommand, PredictsBothTestPartsOfMnli) {
  ASSERT_EQ(run("--model_name_or_path bert-base-cased --task_name mnli --do_train "
                "--max_seq_length 128 --output_dir /tmp/mnli/"),
            0)
      << output_;
  EXPECT_FALSE(fs::exists(path("mnli/eval_results.json")));
  ASSERT_EQ(run("--model_name_or_path mnli --task_name mnli --do_predict --output_dir /tmp/out"), 0)
      << output_;
  for (const char* name :
       {"predict_results_mnli.txt", "predict_results_mnli-mm.txt", "MNLI-m.tsv", "MNLI-mm.tsv"}) {
    std::istringstream in(testing::read_text(path("out") / name));
    std::string line;
    ASSERT_TRUE(std::getline(in, line)) << name;
    EXPECT_EQ(line, "index\tprediction") << name;
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(std::getline(in, line)) << name;
      const std::string start = std::to_string(i) + "\t";
      EXPECT_THAT(
          line, ::testing::AnyOf(start + "entailment", start + "neutral", start + "contradiction"))
          << name;
    }
    EXPECT_FALSE(std::getline(in, line)) << name;
  }
  EXPECT_FALSE(fs::exists(path("out/eval_results.json")));
  EXPECT_FALSE(fs::exists(path("out/model.safetensors")));
  // The diagnostic pairs, which only a model of mnli predicts.
  ASSERT_EQ(run("--model_name_or_path mnli --task_name ax --do_predict --output_dir /tmp/ax"), 0)
      << output_;
  EXPECT_THAT(testing::read_text(path("ax/AX.tsv")),
              ::testing::MatchesRegex("index\tprediction\n([0-7]\t(entailment|neutral|"
                                      "contradiction)\n){8}"));
}

struct GlueByName {
  const char* task;
  std::map<std::string, std::string> id2label;
  const char* metric;
  const char* submission;
};

void PrintTo(const GlueByName& task, std::ostream* out) { *out << task.task; }

class GlueTaskByName : public GuideCommand, public ::testing::WithParamInterface<GlueByName> {};

INSTANTIATE_TEST_SUITE_P(
    Tasks, GlueTaskByName,
    ::testing::Values(
        GlueByName{
            "cola", {{"0", "unacceptable"}, {"1", "acceptable"}}, "matthews_correlation", "CoLA"},
        GlueByName{"sst2", {{"0", "negative"}, {"1", "positive"}}, "accuracy", "SST-2"},
        GlueByName{"qnli", {{"0", "entailment"}, {"1", "not_entailment"}}, "accuracy", "QNLI"},
        GlueByName{"rte", {{"0", "entailment"}, {"1", "not_entailment"}}, "accuracy", "RTE"},
        GlueByName{"wnli", {{"0", "not_entailment"}, {"1", "entailment"}}, "accuracy", "WNLI"}),
    [](const auto& tested) { return std::string(tested.param.task); });

TEST_P(GlueTaskByName, TrainsEvaluatesAndPredicts) {
  const std::string task = GetParam().task;
  ASSERT_EQ(run("--model_name_or_path bert-base-cased --task_name " + task +
                " --do_train --do_eval --do_predict --num_train_epochs 1 --output_dir /tmp/out"),
            0)
      << output_;
  EXPECT_EQ(json("out/config.json").at("id2label"), nlohmann::json(GetParam().id2label));
  const nlohmann::json results = json("out/all_results.json");
  EXPECT_TRUE(results.contains(std::string("eval_") + GetParam().metric)) << results;
  EXPECT_EQ(results.at("train_samples"), 40);
  EXPECT_EQ(results.at("eval_samples"), 8);
  const auto rows = [&](const std::string& file) {
    return std::ranges::count(testing::read_text(path("out/" + file)), '\n');
  };
  EXPECT_EQ(rows("predict_results_" + task + ".txt"), 9);
  EXPECT_EQ(rows(GetParam().submission + std::string(".tsv")), 9);
}

// The command of the guides with the other SQuAD.
TEST_F(GuideCommand, TrainsDistilBertOnQuestionsWithoutAnswers) {
  std::string line = kDistilBertSquad;
  const std::string name = "--dataset_name squad";
  line.replace(line.find(name), name.size(), name + "_v2 --version_2_with_negative");
  train_twice(line.c_str(), "debug_squad");
  expect_results("debug_squad", "DistilBertForQuestionAnswering",
                 {"eval_exact", "eval_f1", "eval_HasAns_exact", "eval_HasAns_f1",
                  "eval_NoAns_exact", "eval_NoAns_f1", "eval_best_exact", "eval_best_f1"},
                 1);
  EXPECT_EQ(json("debug_squad/all_results.json").at("eval_NoAns_total"), 3);
  EXPECT_EQ(json("debug_squad/eval_null_odds.json").size(), 8u);
  EXPECT_EQ(json("debug_squad/config.json").at("finetuning_task"), "squad_v2");
}

TEST_F(GuideCommand, EvaluatesASavedQuestionAnsweringModel) {
  ASSERT_EQ(run(CommandLine(kDistilBertSquad).arguments), 0) << output_;
  ASSERT_EQ(run("--model_name_or_path debug_squad --dataset_name squad --do_eval --bf16 "
                "--output_dir /tmp/evaluated"),
            0)
      << output_;
  EXPECT_THAT(files_of("evaluated"), IsSupersetOf(kAnswerFiles));
  for (const std::string& file : kAnswerFiles) {
    EXPECT_EQ(json("evaluated/" + file), json("debug_squad/" + file)) << file;
  }
  const nlohmann::json trained = json("debug_squad/all_results.json");
  for (const char* name : {"eval_exact_match", "eval_f1", "eval_loss"}) {
    EXPECT_EQ(json("evaluated/all_results.json").at(name), trained.at(name)) << name;
  }
}

// The hub's SQuAD has no test split, so run_qa predicts a file.
TEST_F(GuideCommand, PredictsTheQuestionsOfAFile) {
  ASSERT_EQ(run(CommandLine(kDistilBertSquad).arguments), 0) << output_;
  const std::string questions =
      (testing::source_dir() / "examples/data/questions/dev-v1.1.json").string();
  ASSERT_EQ(run("--model_name_or_path debug_squad --task_name squad --do_predict --test_file " +
                questions + " --output_dir /tmp/predicted"),
            0)
      << output_;
  expect_answers("predicted", "predict");
  EXPECT_FALSE(fs::exists(path("predicted/eval_results.json")));
  // Without answers only the model says what the file is.
  std::ofstream(path("questions.jsonl"))
      << R"({"id": "q", "context": "It is Bob.", "question": "Who?"})"
      << "\n";
  ASSERT_EQ(run("--model_name_or_path debug_squad --do_predict --test_file questions.jsonl "
                "--output_dir /tmp/answers"),
            0)
      << output_;
  EXPECT_THAT(output_, HasSubstr("question answering, as with --task_name=squad: the model answers "
                                 "questions"));
  EXPECT_TRUE(json("answers/predict_predictions.json").contains("q"));
}

// run_qa.py with files in place of --dataset_name: published files, and the rows that run_qa.py
// itself reads. Neither flag nor script names the task.
TEST_F(GuideCommand, TrainsOnQuestionsOfOnesOwn) {
  const fs::path published = testing::source_dir() / "examples/data/questions";
  for (const char* part : {"train", "dev"}) {
    const auto file =
        nlohmann::json::parse(testing::read_text(published / (std::string(part) + "-v1.1.json")));
    nlohmann::json rows = nlohmann::json::array();
    for (const auto& article : file.at("data")) {
      for (const auto& paragraph : article.at("paragraphs")) {
        for (nlohmann::json row : paragraph.at("qas")) {
          nlohmann::json answers = {{"text", nlohmann::json::array()},
                                    {"answer_start", nlohmann::json::array()}};
          for (const auto& answer : row.at("answers")) {
            for (const char* field : {"text", "answer_start"}) {
              answers[field].push_back(answer.at(field));
            }
          }
          row.update({{"answers", answers},
                      {"title", article.at("title")},
                      {"context", paragraph.at("context")}});
          rows.push_back(row);
        }
      }
    }
    std::ofstream(path(std::string(part) + ".json")) << nlohmann::json{{"data", rows}}.dump();
  }
  const std::string flags =
      "--model_name_or_path distilbert-base-uncased --do_train --do_eval --num_train_epochs 1 "
      "--per_device_train_batch_size 32 ";
  ASSERT_EQ(run(flags + "--train_file train.json --validation_file dev.json --output_dir rows"), 0)
      << output_;
  EXPECT_THAT(output_, HasSubstr("question answering, as with --task_name=squad: train.json has "
                                 "questions, contexts and answers"));
  const std::string reference = digest();
  EXPECT_EQ(json("rows/config.json").at("architectures"),
            nlohmann::json({"DistilBertForQuestionAnswering"}));
  EXPECT_THAT(files_of("rows"), IsSupersetOf(kAnswerFiles));
  expect_answers("rows");
  const std::string files = "--train_file " + (published / "train-v1.1.json").string() +
                            " --validation_file " + (published / "dev-v1.1.json").string();
  ASSERT_EQ(run(flags + files + " --output_dir published"), 0) << output_;
  EXPECT_EQ(digest(), reference);
  ASSERT_EQ(run(flags + files + " --task_name squad --max_seq_length 384 --output_dir named"), 0)
      << output_;
  EXPECT_EQ(digest(), reference) << "run_qa.py's default length";
  EXPECT_THAT(output_, ::testing::Not(HasSubstr("as with --task_name")));
}

// A classifier of three classes as the start of one of two, as in Hugging Face's scripts.
TEST_F(GuideCommand, ReplacesTheHeadOfAnotherTaskOnlyIfAsked) {
  ASSERT_EQ(run("--model_name_or_path bert-base-cased --task_name mnli --do_train --max_steps 1 "
                "--output_dir mnli"),
            0)
      << output_;
  const std::string mrpc =
      "--model_name_or_path mnli --task_name mrpc --do_train --max_steps 1 --output_dir mrpc";
  EXPECT_EQ(run(mrpc), static_cast<int>(ExitCode::kWeights));
  EXPECT_THAT(output_, HasSubstr("tensor \"classifier.weight\": found shape [3, 32], expected [2, "
                                 "32]; --ignore_mismatched_sizes "));
  EXPECT_FALSE(fs::exists(path("mrpc")));
  ASSERT_EQ(run(mrpc + " --ignore_mismatched_sizes"), 0) << output_;
  EXPECT_THAT(output_,
              HasSubstr("initialised at random: classifier.weight, classifier.bias (seed"));
  EXPECT_EQ(json("mrpc/config.json").at("id2label").size(), 2u);
  const std::string encoder =
      "--model_name_or_path bert-base-cased --task_name mrpc --do_train --max_steps 1 "
      "--output_dir ";
  ASSERT_EQ(run(encoder + "one"), 0) << output_;
  const std::string reference = digest();
  ASSERT_EQ(run(encoder + "two --ignore_mismatched_sizes True"), 0) << output_;
  EXPECT_EQ(digest(), reference) << "no effect where the shapes fit";
}

// run_glue.py writes integer labels as numbers into config.json.
TEST_F(GuideCommand, TakesAModelWhoseLabelsAreNumbers) {
  std::ofstream(path("train.csv")) << "text,label\nA man.,0\nThe dog ran.,1\nA river.,0\n";
  std::ofstream(path("test.csv")) << "text\nA man.\nThe dog ran.\n";
  ASSERT_EQ(run("--model_name_or_path bert-base-cased --train_file train.csv --validation_file "
                "train.csv --do_train --do_eval --output_dir own"),
            0)
      << output_;
  const nlohmann::json trained = json("own/eval_results.json");
  nlohmann::json config = json("own/config.json");
  EXPECT_EQ(config.at("id2label"), nlohmann::json({{"0", "0"}, {"1", "1"}}));
  config["id2label"] = {{"0", 0}, {"1", 1}};
  fs::copy(path("own"), path("model"));
  std::ofstream(path("model/config.json")) << config.dump();
  ASSERT_EQ(run("--model_name_or_path model --validation_file train.csv --do_eval --output_dir "
                "evaluated"),
            0)
      << output_;
  for (const char* name : {"eval_accuracy", "eval_loss"}) {
    EXPECT_EQ(json("evaluated/eval_results.json").at(name), trained.at(name)) << name;
  }
  ASSERT_EQ(run("--model_name_or_path model --test_file test.csv --do_predict --output_dir out"), 0)
      << output_;
  EXPECT_THAT(testing::read_text(path("out/predict_results_None.txt")),
              ::testing::MatchesRegex("index\tprediction\n0\t[01]\n1\t[01]\n"));
  ASSERT_EQ(run("--model_name_or_path model --task_name mrpc --do_train --max_steps 1 "
                "--output_dir mrpc"),
            0)
      << output_;
}

// The flags of the guide's mpirun line; the processes share an empty cache.
TEST_F(GuideCommand, TrainsInTwoProcessesThatDownloadOnce) {
  const std::string flags =
      "--model_name_or_path distilbert-base-uncased --dataset_name squad --do_train --do_eval "
      "--per_device_train_batch_size 16 --num_train_epochs 1 --overwrite_output_dir --no_cuda "
      "--xpu_backend ccl --bf16 --nominal_workers 2 --output_dir ";
  std::vector<std::string> words = {"agent", "--nproc_per_node=2", "--", "train"};
  for (const std::string& word : testing::split_words(flags + "two")) words.push_back(word);
  testing::RunningProgram agent(testing::program("tilewright-worker"), words, folder());
  ASSERT_EQ(agent.wait(), 0) << agent.output();
  const std::string digest_of_two = digest_in(agent.output());
  for (const auto& request : hub_->requests()) {
    if (!request.storage) continue;
    EXPECT_EQ(hub_->count("GET", request.target), 1) << request.target;
  }
  ASSERT_EQ(run(flags + "one"), 0) << output_;
  EXPECT_EQ(digest(), digest_of_two);
}

TEST_F(GuideCommand, TrainsRegressionOnStsb) {
  ASSERT_EQ(run("--model_name_or_path distilbert-base-uncased --task_name stsb --do_train "
                "--do_eval --do_predict --output_dir /tmp/stsb"),
            0)
      << output_;
  const nlohmann::json results = json("stsb/all_results.json");
  for (const char* name : {"eval_pearson", "eval_spearmanr", "eval_combined_score"}) {
    EXPECT_TRUE(results.contains(name)) << results;
  }
  EXPECT_EQ(json("stsb/config.json").at("architectures"),
            nlohmann::json({"DistilBertForSequenceClassification"}));
  EXPECT_TRUE(fs::exists(path("stsb/predict_results_stsb.txt")));
}

}  // namespace
}  // namespace tilewright
