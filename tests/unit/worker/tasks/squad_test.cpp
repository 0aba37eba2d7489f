#include "worker/tasks/squad/squad.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/tasks/squad_builders.h"
#include "worker/tasks/registry.h"

namespace tilewright::tasks::squad {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::SizeIs;

const std::string kAnswered = one_paragraph("a b", question("q", "x", answer("b", 2)));
const std::string kUnanswered = one_paragraph("a b", question("q", "x", "[]"));

ReadOptions options_of(const DataFolder& folder) {
  ReadOptions options = folder.options();
  options.max_seq_length = 384;
  return options;
}

TEST(SquadTask, HasTheHeadAndTheFilesOfTheDataSet) {
  const auto task = tasks::make_task({.name = "squad"});
  EXPECT_EQ(task->head(), nn::Head::kQuestionAnswering);
  EXPECT_EQ(task->num_labels(), 2);
  EXPECT_THAT(task->label_names(), SizeIs(0));
  EXPECT_EQ(task->file_name({Split::kTrain}), "train-v1.1.json");
  EXPECT_EQ(tasks::make_task({.name = "SQUAD_V2"})->file_name({Split::kDev}), "dev-v2.0.json");
}

TEST(SquadTask, NamesItsInputFiles) {
  EXPECT_THAT(tasks::make_task({.name = "squad"})->input_files({Split::kTrain}, "data"),
              ElementsAre("data/train-v1.1.json"));
  TaskOptions own;
  own.name = "squad";
  own.train_file = "own.json";
  EXPECT_THAT(tasks::make_task(own)->input_files({Split::kTrain}, "data"), ElementsAre("own.json"));
}

// Training examples are not scored.
TEST(SquadTask, KeepsNoTextOfATrainingSplit) {
  const DataFolder folder;
  folder.write("train-v1.1.json", kAnswered);
  const Dataset data = tasks::make_task({.name = "squad"})
                           ->read({Split::kTrain}, tiny_tokenizer(), options_of(folder));
  EXPECT_THAT(data.ids, ElementsAre(2, 19, 3, 8, 16, 3));
  EXPECT_EQ(data.source, nullptr);
}

TEST(SquadTask, ReadsTargetsAndScoresLogits) {
  const DataFolder folder;
  folder.write("dev-v1.1.json", kAnswered);
  const auto task = tasks::make_task({.name = "squad"});
  const Dataset data = task->read({Split::kDev}, tiny_tokenizer(), options_of(folder));
  EXPECT_THAT(data.ids, ElementsAre(2, 19, 3, 8, 16, 3));
  EXPECT_THAT(data.labels, ElementsAre(5));
  EXPECT_THAT(data.last_labels, ElementsAre(4));
  std::vector<float> logits(12, 0);
  logits[8] = logits[9] = 1;
  EXPECT_THAT(task->score({Split::kDev}, logits, data).metrics,
              ElementsAre(Pair("exact_match", 100), Pair("f1", 100)));
  const auto files = task->score({Split::kDev}, logits, data).prediction_files;
  EXPECT_THAT(files, ElementsAre(Pair("eval_nbest_predictions.json", HasSubstr("\"text\": \"b\"")),
                                 Pair("eval_predictions.json", "{\n    \"q\": \"b\"\n}\n")));
  EXPECT_EQ(
      task->score({Split::kTest}, logits, data).prediction_files.count("predict_predictions.json"),
      1U);
}

TEST(SquadTask, SquadV2ScoresQuestionsWithoutAnswers) {
  const DataFolder folder;
  folder.write("dev-v2.0.json", kUnanswered);
  const auto task = tasks::make_task({.name = "squad_v2"});
  const Dataset data = task->read({Split::kDev}, tiny_tokenizer(), options_of(folder));
  EXPECT_THAT(data.labels, ElementsAre(0));
  std::vector<float> logits(12, 0);
  logits[0] = 1;
  const Metrics found = task->score({Split::kDev}, logits, data).metrics;
  EXPECT_EQ(found[0], (std::pair<std::string, double>("exact", 100)));
  EXPECT_EQ(task->score({Split::kDev}, logits, data).prediction_files.at("eval_null_odds.json"),
            "{\n    \"q\": 1.0\n}\n");
}

TEST(SquadTask, EvaluationWithoutAnswersNeedsVersion2) {
  const DataFolder folder;
  folder.write("dev-v1.1.json", kUnanswered);
  folder.write("test-v1.1.json", kUnanswered);
  const auto task = tasks::make_task({.name = "squad"});
  EXPECT_EQ(failure_of([&] { task->read({Split::kDev}, tiny_tokenizer(), options_of(folder)); }),
            "dev-v1.1.json: question \"q\": has no answers, expected at least one; "
            "--version_2_with_negative accepts questions without");
  ReadOptions negative = options_of(folder);
  negative.question_answering.version_2_with_negative = true;
  EXPECT_EQ(task->read({Split::kDev}, tiny_tokenizer(), negative).size(), 1U);
  EXPECT_FALSE(task->read({Split::kTest}, tiny_tokenizer(), options_of(folder)).has_labels());
}

TEST(SquadTask, RefusesAFileWhoseQuestionsAllLackTheMemberAnswers) {
  const DataFolder folder;
  const std::string misspelt = R"({"id": "q", "question": "x", "answer": [{"text": "a"}]})";
  const std::string file = one_paragraph("a b", misspelt);
  const std::string row = R"({"id": "q", "question": "x", "context": "a b", "answer": "a"})";
  const auto task = tasks::make_task({.name = "squad"});
  ReadOptions options = options_of(folder);
  options.question_answering.version_2_with_negative = true;
  const auto read = [&](Split split) { return task->read({split}, tiny_tokenizer(), options); };
  for (const char* name : {"train-v1.1.json", "dev-v1.1.json", "test-v1.1.json"}) {
    folder.write(name, file);
  }
  const std::string message = ": \"answers\" is missing in all questions, found ";
  EXPECT_EQ(failure_of([&] { read(Split::kTrain); }),
            "train-v1.1.json" + message + R"("answer", "id", "question")");
  EXPECT_EQ(failure_of([&] { read(Split::kDev); }),
            "dev-v1.1.json" + message + R"("answer", "id", "question")");
  EXPECT_EQ(read(Split::kTest).size(), 1U);
  folder.write("train-v1.1.json", row);
  EXPECT_EQ(failure_of([&] { read(Split::kTrain); }),
            "train-v1.1.json" + message + R"("answer", "context", "id", "question")");
  // Some rows may leave the member out.
  folder.write("train-v1.1.json",
               one_paragraph("a b", misspelt + "," + question("r", "x", answer("b", 2))));
  EXPECT_EQ(read(Split::kTrain).size(), 2U);
}

TEST(SquadTask, WarnsOfATrainingWithoutAnAnswer) {
  const DataFolder folder;
  const auto warnings = [&] {
    return tasks::make_task({.name = "squad"})
        ->read({Split::kTrain}, tiny_tokenizer(), options_of(folder))
        .warnings;
  };
  for (const char* none : {"[]", "null"}) {
    folder.write("train-v1.1.json", one_paragraph("a b", question("q", "x", none)));
    EXPECT_THAT(warnings(), ElementsAre(EndsWith("train-v1.1.json: no question has an answer: the "
                                                 "model learns to answer none")));
  }
  folder.write("train-v1.1.json", kAnswered);
  EXPECT_THAT(warnings(), SizeIs(0));
}

// Version 1 cannot score them, which must not stop a training that predicts at its end.
TEST(SquadTask, ATestFileWithSomeAnswersHasScoresOnlyInVersion2) {
  const DataFolder folder;
  folder.write("test-v1.1.json",
               one_paragraph("a b", question("q", "x", R"([{"text": "a", "answer_start": 0}])") +
                                        "," + question("r", "x", "[]")));
  const auto task = tasks::make_task({.name = "squad"});
  ReadOptions options = options_of(folder);
  const Dataset data = task->read({Split::kTest}, tiny_tokenizer(), options);
  EXPECT_FALSE(data.has_labels());
  const std::vector<float> logits(2 * data.ids.size());
  EXPECT_TRUE(task->score({Split::kTest}, logits, data).metrics.empty());
  options.question_answering.version_2_with_negative = true;
  EXPECT_TRUE(task->read({Split::kTest}, tiny_tokenizer(), options).has_labels());
}

TEST(SquadTask, MaxSamplesLimitsQuestionsAndThenFeatures) {
  const DataFolder folder;
  folder.write("train-v1.1.json", one_paragraph("a b a b x b a b", question("q", "x", "[]") + "," +
                                                                       question("r", "x", "[]")));
  ReadOptions options = options_of(folder);
  options.max_seq_length = 8;
  options.question_answering.doc_stride = 2;
  const auto task = tasks::make_task({.name = "squad"});
  EXPECT_EQ(task->read({Split::kTrain}, tiny_tokenizer(), options).size(), 6U);
  options.max_samples = 1;
  EXPECT_EQ(task->read({Split::kTrain}, tiny_tokenizer(), options).size(), 1U);
}

}  // namespace
}  // namespace tilewright::tasks::squad
