// Trainings at the edges: batches of one, data sets of one example, sequences of 1 to 512 tokens, a
// context of 10,000 words, evaluations and predictions alone, prepared Arrow files.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "common/base/exit_codes.h"
#include "tests/integration/hub_fixture.h"
#include "tests/support/prepared_squad.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Edges : public testing::HubTraining {
 protected:
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(path(name).parent_path());
    std::ofstream(path(name)) << text;
  }
  // Rows of a CSV file with the columns sentence1 and label.
  static std::string csv(const std::vector<std::string>& sentences) {
    std::string text = "sentence1,label\n";
    for (std::size_t i = 0; i < sentences.size(); ++i) {
      text += sentences[i] + (i % 2 == 0 ? ",no\n" : ",yes\n");
    }
    return text;
  }
  static std::string words(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += i == 0 ? "a" : " a";
    return text;
  }
};

constexpr const char* kTrain =
    "--model_name_or_path bert-base-cased --do_train --do_eval --num_train_epochs 1 ";

TEST_F(Edges, BatchesOfOneHaveTheHashOfABatchOfFour) {
  const std::string squad =
      "--model_name_or_path distilbert-base-uncased --dataset_name squad --do_train --do_eval "
      "--max_train_samples 8 --num_train_epochs 1 --virtual_shards 4 ";
  ASSERT_EQ(run(squad + "--per_device_train_batch_size 4 --output_dir /tmp/four"), 0) << output_;
  const std::string four = digest();
  ASSERT_EQ(run(squad + "--per_device_train_batch_size 1 --gradient_accumulation_steps 4 "
                        "--per_device_eval_batch_size 1 --output_dir /tmp/one"),
            0)
      << output_;
  EXPECT_EQ(digest(), four);
  EXPECT_EQ(json("one/eval_predictions.json"), json("four/eval_predictions.json"));
  ASSERT_EQ(
      run(squad + "--per_device_train_batch_size 1 --virtual_shards 1 --output_dir /tmp/steps"), 0)
      << output_;
  EXPECT_EQ(json("steps/trainer_state.json").at("global_step"), 8);
}

// [CLS] a ... a [SEP] of 2 to 512 tokens, and longer ones, which are cut to 512.
TEST_F(Edges, SequencesHaveUpToAsManyTokensAsTheModelHasPositions) {
  write("train.csv", csv({"", "a", words(2), words(61), words(62), words(63), words(254),
                          words(509), words(510), words(511), words(3000)}));
  const std::string files =
      "--train_file /tmp/train.csv --validation_file /tmp/train.csv --per_device_train_batch_size "
      "2 ";
  ASSERT_EQ(run(kTrain + files + "--max_seq_length 512 --output_dir /tmp/whole"), 0) << output_;
  EXPECT_EQ(json("whole/trainer_state.json").at("global_step"), 6);
  // 2, 3, 4, 63 to 65, 256, 511 and three times 512 tokens.
  EXPECT_THAT(output_, HasSubstr(fmt::format("11 examples ({:.1f} tokens on average, 512 at most)",
                                             2504 / 11.0)));
  const std::string whole = digest();
  ASSERT_EQ(run(kTrain + files + "--max_seq_length 4 --output_dir /tmp/short"), 0) << output_;
  // As run_glue, which lowers it to the tokenizer's model_max_length.
  ASSERT_EQ(run(kTrain + files + "--max_seq_length 513 --output_dir /tmp/long"), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("--max_seq_length=513: the model takes at most 512 tokens; using "
                                 "512"));
  EXPECT_EQ(digest(), whole);
}

// [CLS] and [SEP] alone, and with one token of a pair that is cut.
TEST_F(Edges, ADataSetMayHaveNoTextAtAll) {
  const auto train = [&](const std::string& rows, const std::string& length) {
    write("train.csv", rows);
    fs::remove_all(path("out"));
    ASSERT_EQ(run(kTrain + ("--train_file /tmp/train.csv --validation_file /tmp/train.csv "
                            "--per_device_train_batch_size 1 --output_dir /tmp/out "
                            "--max_seq_length " +
                            length)),
              0)
        << output_;
    EXPECT_EQ(json("out/trainer_state.json").at("global_step"), 2);
    EXPECT_TRUE(std::isfinite(json("out/all_results.json").at("eval_loss").get<double>()));
  };
  train(csv({"", " "}), "512");
  EXPECT_THAT(output_, HasSubstr("2 examples (2.0 tokens on average, 2 at most)"));
  train("sentence1,sentence2,label\na b,a b,no\na,,yes\n", "4");
  EXPECT_THAT(output_, HasSubstr("2 examples (4.0 tokens on average, 4 at most)"));
}

// Questions with answers at the beginning, in the middle and at the end.
TEST_F(Edges, AContextOfTenThousandWordsIsReadInWindows) {
  const std::string context = "Apple " + words(4'998) + " Melon " + words(4'999) + " Zebra";
  std::string questions;
  for (const char* answer : {"Apple", "Melon", "Zebra"}) {
    questions +=
        fmt::format(R"({}{{"id": "{}", "question": "Which word?", "answers": [{{"text": "{}", )"
                    R"("answer_start": {}}}]}})",
                    questions.empty() ? "" : ", ", answer, answer, context.find(answer));
  }
  const std::string text = fmt::format(
      R"({{"data": [{{"paragraphs": [{{"context": "{}", "qas": [{}]}}]}}]}})", context, questions);
  for (const char* file : {"train-v1.1.json", "dev-v1.1.json", "test-v1.1.json"}) {
    write(std::string("squad/") + file, text);
  }
  ASSERT_EQ(run("--model_name_or_path distilbert-base-uncased --task_name squad --do_train "
                "--do_eval --do_predict --num_train_epochs 1 --learning_rate 0 --data_dir "
                "/tmp/squad --output_dir /tmp/out"),
            0)
      << output_;
  // Windows of 384 tokens that share 128: [CLS], the question's three or more tokens and two [SEP]
  // leave 378 at most for the context, which has at least one token a word.
  const nlohmann::json results = json("out/all_results.json");
  EXPECT_GE(results.at("train_samples"), 3 * (10'000 - 378) / (378 - 128));
  EXPECT_EQ(results.at("eval_samples"), results.at("train_samples"));
  const nlohmann::json answers = json("out/eval_predictions.json");
  ASSERT_EQ(answers.size(), 3u);
  for (const auto& [id, answer] : answers.items()) {
    EXPECT_THAT(context, HasSubstr(answer.get<std::string>())) << id;
  }
  EXPECT_EQ(json("out/predict_predictions.json"), answers);
}

TEST_F(Edges, ASavedModelNamesItsTask) {
  ASSERT_EQ(run(std::string(kTrain) + "--task_name mrpc --output_dir /tmp/trained"), 0) << output_;
  EXPECT_EQ(json("trained/config.json").at("finetuning_task"), "mrpc");
  const nlohmann::json trained = json("trained/all_results.json");
  ASSERT_EQ(run("--model_name_or_path trained --do_eval --output_dir /tmp/evaluated"), 0)
      << output_;
  const nlohmann::json evaluated = json("evaluated/all_results.json");
  for (const char* name : {"eval_accuracy", "eval_f1", "eval_loss"}) {
    EXPECT_EQ(evaluated.at(name), trained.at(name)) << name;
  }
  // The same model on the hub.
  for (const std::string& file : files_of("trained")) {
    if (!fs::is_regular_file(path("trained") / file)) continue;
    hub_->add_file(testing::HubServer::Type::kModel, "org/mrpc", file,
                   testing::read_text(path("trained") / file));
  }
  ASSERT_EQ(run("--model_name_or_path org/mrpc --log_level error", "eval"), 0) << output_;
  EXPECT_EQ(nlohmann::json::parse(output_, nullptr, false).at("eval_loss"),
            trained.at("eval_loss"));
  ASSERT_EQ(run("--model_name_or_path trained --do_predict --output_dir /tmp/predicted"), 0)
      << output_;
  EXPECT_TRUE(fs::exists(path("predicted/predict_results_mrpc.txt")));
  EXPECT_FALSE(fs::exists(path("predicted/eval_results.json")));
  EXPECT_EQ(run("--model_name_or_path bert-base-cased --do_eval --output_dir /tmp/none"),
            static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(output_, HasSubstr("--task_name is missing"));
}

TEST_F(Edges, PredictionsCanBeThoseOfTheFirstRows) {
  ASSERT_EQ(run(std::string(kTrain) + "--task_name mrpc --do_predict --output_dir /tmp/trained"), 0)
      << output_;
  const std::string whole = testing::read_text(path("trained/predict_results_mrpc.txt"));
  ASSERT_EQ(
      run("--model_name_or_path trained --task_name mrpc --do_predict --max_predict_samples 3 "
          "--output_dir /tmp/predicted"),
      0)
      << output_;
  const std::string first = testing::read_text(path("predicted/predict_results_mrpc.txt"));
  EXPECT_EQ(std::ranges::count(first, '\n'), 1 + 3);  // with the header
  EXPECT_TRUE(whole.starts_with(first)) << first << "\n" << whole;
  EXPECT_GT(whole.size(), first.size());
  EXPECT_EQ(json("predicted/predict_results.json").at("predict_samples"), 3);
}

TEST_F(Edges, AModelMayHaveItsConfigElsewhere) {
  ASSERT_EQ(run(std::string(kTrain) + "--task_name mrpc --output_dir /tmp/trained"), 0) << output_;
  fs::create_directory(path("other"));
  fs::rename(path("trained/config.json"), path("other/config.json"));
  const std::string flags = "--model_name_or_path trained --task_name mrpc --do_eval ";
  EXPECT_EQ(run(flags), static_cast<int>(ExitCode::kModel));
  ASSERT_EQ(run(flags + "--config_name other --output_dir /tmp/evaluated"), 0) << output_;
  EXPECT_EQ(json("evaluated/all_results.json").at("eval_loss"),
            json("trained/all_results.json").at("eval_loss"));
}

// The first row alone has the label of most training rows.
TEST_F(Edges, BaselinesAreThoseOfTheRowsThatAreEvaluated) {
  ASSERT_EQ(run(std::string(kTrain) + "--task_name mrpc --output_dir /tmp/trained"), 0) << output_;
  const std::string header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n";
  write("data/train.tsv", header + "1\t1\t2\tOne.\tOne.\n1\t1\t2\tTwo.\tTwo.\n");
  write("data/dev.tsv", header + "1\t1\t2\tOne.\tOne.\n0\t1\t2\tOne.\tTwo.\n");
  const std::string flags =
      "--model_name_or_path trained --task_name mrpc --data_dir /tmp/data --do_eval ";
  ASSERT_EQ(run(flags), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("baselines: majority accuracy 0.5000"));
  ASSERT_EQ(run(flags + "--max_eval_samples 1"), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("baselines: majority accuracy 1.0000"));
  EXPECT_THAT(output_, HasSubstr("; 1 example\n"));
  // Training rows that nothing else reads do not cost the results.
  write("data/train.tsv", header + "1\t1\t2\tOne.\tOne.\nbad\n");
  ASSERT_EQ(run(flags + "--output_dir /tmp/evaluated"), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("no baselines: "));
  EXPECT_LT(output_.find("output: "), output_.find("no baselines: "))
      << "texts of any length are compared while the results are not written";
  EXPECT_LT(output_.find("***** eval metrics *****"), output_.find("no baselines: "))
      << "the job may end the process while it compares texts";
  EXPECT_EQ(json("evaluated/all_results.json").at("eval_samples"), 2);
}

TEST_F(Edges, PredictTakesOneInput) {
  EXPECT_EQ(run("--model_name_or_path trained", "predict"), static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(output_, HasSubstr("found neither --input nor a data set, expected --input FILE"));
  EXPECT_EQ(run("--model_name_or_path trained --input a.jsonl --input=b.jsonl", "predict"),
            static_cast<int>(ExitCode::kUsage));
  EXPECT_EQ(output_, "tilewright-worker: --input: found it twice, expected one file\n");
  ASSERT_EQ(run("--help", "predict"), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("  --input FILE"));
  EXPECT_THAT(output_, ::testing::Not(HasSubstr("--learning_rate")));
}

struct EdgeTask {
  const char* name;     // as --task_name; empty: files of one's own
  const char* model;    // a name on the hub
  const char* answers;  // the file with the predictions
  std::vector<const char*> metrics;
  const char* input;  // a line for `predict --input`
  const char* field;  // of its answer
};

void PrintTo(const EdgeTask& task, std::ostream* out) {
  *out << (*task.name == 0 ? "own_files" : task.name);
}

// A task for each head, and files of one's own.
class EdgesOfTasks : public Edges, public ::testing::WithParamInterface<EdgeTask> {
 protected:
  // Writes the data of a split with this many examples.
  void write_split(const std::string& split, int examples) const {
    const std::string task = GetParam().name;
    std::string rows;
    for (int i = 0; i < examples; ++i) {
      const std::string one = fmt::format("He said so {} times.", i);
      const std::string two = fmt::format("So he said {} times.", i);
      const int label = 1 - i % 2;
      if (task == "mrpc") {
        rows += fmt::format("{}\t1\t2\t{}\t{}\n", split == "test" ? i : label, one, two);
      } else if (task == "stsb") {
        rows += fmt::format("{}\tnews\tnone\t2015\t{}\tnone\tnone\t{}\t{}{}\n", i, i, one, two,
                            split == "test" ? "" : fmt::format("\t{}", 4.5 - i));
      } else if (answers_questions()) {
        const bool has_answer = task == "squad" || i % 2 == 0;
        rows += fmt::format(
            R"({}{{"context": "{}", "qas": [{{"id": "q{}", "question": "What did he say?", )"
            R"("is_impossible": {}, "answers": [{}]}}]}})",
            i == 0 ? "" : ", ", one, i, !has_answer,
            has_answer ? R"({"text": "so", "answer_start": 8})" : "");
      } else {
        rows += fmt::format("{}{}\n", one, split == "test" ? "" : label == 1 ? ",yes" : ",no");
      }
    }
    if (task == "mrpc") {
      const char* first = split == "test" ? "index" : "Quality";
      rows = fmt::format("{}\t#1 ID\t#2 ID\t#1 String\t#2 String\n", first) + rows;
    } else if (task == "stsb") {
      rows = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2" +
             std::string(split == "test" ? "" : "\tscore") + "\n" + rows;
    } else if (answers_questions()) {
      rows = R"({"data": [{"paragraphs": [)" + rows + "]}]}";
    } else {
      rows = std::string(split == "test" ? "sentence1" : "sentence1,label") + "\n" + rows;
    }
    write(file_of(split), rows);
  }
  static bool answers_questions() { return std::string(GetParam().name).starts_with("squad"); }
  static std::string file_of(const std::string& split) {
    const std::string task = GetParam().name;
    if (task == "squad") return "data/" + split + "-v1.1.json";
    if (task == "squad_v2") return "data/" + split + "-v2.0.json";
    return "data/" + split + (task.empty() ? ".csv" : ".tsv");
  }
  // The flags that name the data of these splits.
  static std::string data_flags(const std::vector<std::string>& splits) {
    const std::string task = GetParam().name;
    if (!task.empty()) return "--task_name " + task + " --data_dir /tmp/data ";
    std::string flags;
    for (const std::string& split : splits) {
      flags +=
          fmt::format("--{}_file /tmp/data/{}.csv ", split == "dev" ? "validation" : split, split);
    }
    return flags;
  }
  static std::string train_flags() {
    return fmt::format(
               "--model_name_or_path {} --do_train --do_eval --do_predict "
               "--num_train_epochs 1 ",
               GetParam().model) +
           data_flags({"train", "dev", "test"});
  }
  void expect_metrics(const nlohmann::json& found, const nlohmann::json& expected) const {
    for (const char* name : GetParam().metrics) {
      ASSERT_TRUE(expected.contains(name)) << expected;
      EXPECT_TRUE(expected.at(name).is_number()) << name;
      EXPECT_EQ(found.at(name), expected.at(name)) << name;
    }
    EXPECT_FALSE(found.contains("train_loss")) << found;
  }
};

INSTANTIATE_TEST_SUITE_P(EveryHead, EdgesOfTasks,
                         ::testing::Values(EdgeTask{"mrpc",
                                                    "bert-base-cased",
                                                    "predict_results_mrpc.txt",
                                                    {"eval_accuracy", "eval_f1", "eval_loss"},
                                                    R"({"sentence1": "So?", "sentence2": "So."})",
                                                    "label"},
                                           EdgeTask{"stsb",
                                                    "bert-base-cased",
                                                    "predict_results_stsb.txt",
                                                    {"eval_pearson", "eval_spearmanr", "eval_loss"},
                                                    R"({"sentence1": "So?", "sentence2": "So."})",
                                                    "score"},
                                           EdgeTask{"squad",
                                                    "distilbert-base-uncased",
                                                    "predict_predictions.json",
                                                    {"eval_exact_match", "eval_f1"},
                                                    R"({"question": "What?", "context": "So."})",
                                                    "answer"},
                                           EdgeTask{"squad_v2",
                                                    "distilbert-base-uncased",
                                                    "predict_predictions.json",
                                                    {"eval_exact", "eval_f1", "eval_HasAns_f1",
                                                     "eval_best_f1", "eval_best_f1_thresh"},
                                                    R"({"question": "What?", "context": "So."})",
                                                    "answer"},
                                           EdgeTask{"",
                                                    "distilbert-base-uncased",
                                                    "predict_results_None.txt",
                                                    {"eval_accuracy", "eval_loss"},
                                                    R"({"sentence": "So."})",
                                                    "label"}),
                         [](const auto& tested) {
                           return std::string(*tested.param.name == 0 ? "own_files"
                                                                      : tested.param.name);
                         });

TEST_P(EdgesOfTasks, OneExampleInBatchesOfOneIsADataSet) {
  // The labels of files of one's own are those of the training rows, of which there must be two.
  const int trained = *GetParam().name == 0 ? 2 : 1;
  write_split("train", trained);
  for (const char* split : {"dev", "test"}) write_split(split, 1);
  ASSERT_EQ(run(train_flags() + "--per_device_train_batch_size 1 --per_device_eval_batch_size 1 "
                                "--output_dir /tmp/out"),
            0)
      << output_;
  const nlohmann::json results = json("out/all_results.json");
  EXPECT_EQ(results.at("train_samples"), trained);
  EXPECT_EQ(results.at("eval_samples"), 1);
  EXPECT_EQ(results.at("predict_samples"), 1);
  EXPECT_EQ(json("out/trainer_state.json").at("global_step"), trained);
  EXPECT_TRUE(std::isfinite(results.at("train_loss").get<double>()));
  for (const char* name : GetParam().metrics) EXPECT_TRUE(results.at(name).is_number()) << name;
  const std::string answers = testing::read_text(path("out") / GetParam().answers);
  if (answers.starts_with("{")) {
    EXPECT_EQ(json(std::string("out/") + GetParam().answers).size(), 1u);
  } else {
    EXPECT_EQ(std::ranges::count(answers, '\n'), 2) << answers;
  }
}

TEST_P(EdgesOfTasks, ASavedModelIsEvaluatedAndPredictsWithoutTheOtherSplits) {
  for (const char* split : {"train", "dev", "test"}) write_split(split, 3);
  ASSERT_EQ(run(train_flags() + "--output_dir /tmp/trained"), 0) << output_;
  const nlohmann::json trained = json("trained/all_results.json");
  const std::string answers = testing::read_text(path("trained") / GetParam().answers);
  fs::remove_all(path("data"));
  write_split("dev", 3);
  const std::string saved = "--model_name_or_path trained ";
  ASSERT_EQ(run(saved + data_flags({"dev"}) + "--do_eval --output_dir /tmp/evaluated"), 0)
      << output_;
  expect_metrics(json("evaluated/all_results.json"), trained);
  ASSERT_EQ(run(saved + data_flags({"dev"}) + "--log_level error", "eval"), 0) << output_;
  expect_metrics(nlohmann::json::parse(output_, nullptr, false), trained);
  fs::remove_all(path("data"));
  write_split("test", 3);
  // The file of a split that is not used need not exist.
  const std::string test_flags =
      saved + data_flags({"test"}) +
      (*GetParam().name == 0 ? "--validation_file /tmp/data/none.csv " : "");
  for (const std::string command : {"train", "predict"}) {
    const std::string output = "predicted-by-" + command;
    ASSERT_EQ(run(fmt::format("{}{} --output_dir /tmp/{}", test_flags,
                              command == "train" ? "--do_predict" : "", output),
                  command),
              0)
        << output_;
    EXPECT_EQ(testing::read_text(path(output) / GetParam().answers), answers);
    EXPECT_FALSE(fs::exists(path(output) / "eval_results.json"));
    EXPECT_FALSE(fs::exists(path(output) / "model.safetensors"));
  }
  fs::remove_all(path("data"));
  write("lines.jsonl", std::string(GetParam().input) + "\n");
  ASSERT_EQ(run(saved + "--input /tmp/lines.jsonl", "predict"), 0) << output_;
  const auto line = nlohmann::json::parse(output_, nullptr, false);
  EXPECT_TRUE(line.contains(GetParam().field)) << output_;
  if (std::string(GetParam().name) != "squad_v2") return;
  for (const char* file :
       {"trained/eval_null_odds.json", "predicted-by-predict/predict_null_odds.json"}) {
    EXPECT_EQ(json(file).size(), 3u) << file;
  }
  // The model's config.json says that a question may have no answer.
  ASSERT_EQ(run(saved + "--input /tmp/lines.jsonl --null_score_diff_threshold=-1000", "predict"), 0)
      << output_;
  EXPECT_EQ(nlohmann::json::parse(output_, nullptr, false).value("answer", "none"), "") << output_;
}

// Files that pyarrow wrote in the format of the datasets library; they have the rows of the hub's.
TEST_F(Edges, PreparedArrowFilesAreReadWithoutNetwork) {
  const std::string flags =
      "--model_name_or_path distilbert-base-uncased --dataset_name squad --do_train --do_eval "
      "--num_train_epochs 1 --output_dir ";
  ASSERT_EQ(run(flags + "/tmp/parquet"), 0) << output_;
  const std::string reference = digest();
  testing::write_prepared_squad(path("cache/datasets"));
  fs::remove_all(path("cache/hub/datasets--squad"));
  hub_.reset();
  const testing::ScopedVariable offline("HF_HUB_OFFLINE", "1");
  ASSERT_EQ(run(flags + "/tmp/arrow"), 0) << output_;
  EXPECT_EQ(digest(), reference);
  EXPECT_EQ(json("arrow/eval_predictions.json"), json("parquet/eval_predictions.json"));
}

}  // namespace
}  // namespace tilewright
