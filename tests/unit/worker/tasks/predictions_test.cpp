// The files with the predictions of a test split: run_glue's and those of GLUE's submission.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/tasks/builders.h"

namespace tilewright::tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::map<std::string, std::string> predict(const Task& task, const DataPart& part,
                                           const std::string& content,
                                           const std::vector<float>& logits) {
  const DataFolder folder;
  folder.write(task.file_name(part), content);
  const Dataset data = task.read(part, tiny_tokenizer(), folder.options());
  return task.score(part, logits, data).prediction_files;
}

TEST(Predictions, HaveLabelNamesForRunGlueAndIdsForGlue) {
  EXPECT_THAT(predict(*make_task({.name = "cola"}), {Split::kTest}, "index\tsentence\n0\ta\n1\tb\n",
                      {0, 1, 1, 0}),
              ElementsAre(Pair("CoLA.tsv", "index\tprediction\n0\t1\n1\t0\n"),
                          Pair("predict_results_cola.txt",
                               "index\tprediction\n0\tacceptable\n1\tunacceptable\n")));
}

TEST(Predictions, HaveLabelNamesForGlueWhereItAsksForThem) {
  const std::string nli = "index\tsentence1\tsentence2\n0\ta\tb\n1\ta\tb\n";
  EXPECT_THAT(predict(*make_task({.name = "rte"}), {Split::kTest}, nli, {0, 1, 1, 0}),
              ElementsAre(Pair("RTE.tsv", "index\tprediction\n0\tnot_entailment\n1\tentailment\n"),
                          Pair("predict_results_rte.txt",
                               "index\tprediction\n0\tnot_entailment\n1\tentailment\n")));
  const std::vector<float> logits = {0, 0, 1, 0, 1, 0};
  const std::string named = "index\tprediction\n0\tcontradiction\n1\tneutral\n";
  EXPECT_THAT(predict(*make_task({.name = "ax"}), {Split::kTest}, nli, logits),
              ElementsAre(Pair("AX.tsv", named), Pair("predict_results_ax.txt", named)));
  EXPECT_THAT(predict(*make_task({.name = "mnli"}), {Split::kTest, 0}, nli, logits),
              ElementsAre(Pair("MNLI-m.tsv", named), Pair("predict_results_mnli.txt", named)));
  EXPECT_THAT(predict(*make_task({.name = "mnli"}), {Split::kTest, 1}, nli, logits),
              ElementsAre(Pair("MNLI-mm.tsv", named), Pair("predict_results_mnli-mm.txt", named)));
}

TEST(Predictions, OfStsbAreNumbersThatTheSubmissionClips) {
  EXPECT_THAT(
      predict(*make_task({.name = "stsb"}), {Split::kTest},
              "index\tsentence1\tsentence2\n0\ta\tb\n1\ta\tb\n2\ta\tb\n", {-0.25F, 3.14159F, 5.5F}),
      ElementsAre(
          Pair("STS-B.tsv", "index\tprediction\n0\t0.000\n1\t3.142\n2\t5.000\n"),
          Pair("predict_results_stsb.txt", "index\tprediction\n0\t-0.250\n1\t3.142\n2\t5.500\n")));
}

TEST(Predictions, KeepTheIndicesOfRowsAroundSkippedOnes) {
  EXPECT_THAT(predict(*make_task({.name = "qqp"}), {Split::kTest},
                      "id\tquestion1\tquestion2\n0\ta\tb\n1\ta\n2\ta\tb\n", {0, 1, 1, 0}),
              ElementsAre(Pair("QQP.tsv", "index\tprediction\n0\t1\n2\t0\n"),
                          Pair("predict_results_qqp.txt",
                               "index\tprediction\n0\tduplicate\n1\tnot_duplicate\n")));
}

TEST(Predictions, UseGluesIdsWhateverTheOrderOfTheModelsLabels) {
  const auto task = make_task({.name = "mrpc", .model_labels = {"equivalent", "not_equivalent"}});
  EXPECT_THAT(predict(*task, {Split::kTest}, "#1 String\t#2 String\na\tb\n", {1, 0}),
              ElementsAre(Pair("MRPC.tsv", "index\tprediction\n0\t1\n"),
                          Pair("predict_results_mrpc.txt", "index\tprediction\n0\tequivalent\n")));
}

TEST(Predictions, AreNotWrittenForADevSplit) {
  EXPECT_THAT(
      predict(*make_task({.name = "sst2"}), {Split::kDev}, "sentence\tlabel\na\t1\n", {1, 0}),
      IsEmpty());
}

TEST(Predictions, FilesHaveTheNamesOfGluesSubmission) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"mrpc", "MRPC.tsv"}, {"qnli", "QNLI.tsv"}, {"sst2", "SST-2.tsv"}, {"wnli", "WNLI.tsv"}};
  const std::string all =
      "question\tsentence\tsentence1\tsentence2\t#1 String\t#2 String\na\tb\ta\tb\ta\tb\n";
  for (const auto& [task, file] : names) {
    EXPECT_EQ(
        predict(*make_task({.name = std::string(task)}), {Split::kTest}, all, {0, 1}).count(file),
        1U)
        << file;
  }
}

}  // namespace
}  // namespace tilewright::tasks
