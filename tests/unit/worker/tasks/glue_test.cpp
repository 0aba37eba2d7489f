#include "worker/tasks/glue/glue.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "common/contract/tasks.h"
#include "tests/unit/worker/tasks/builders.h"

namespace tilewright::tasks {
namespace {

using Ids = std::vector<std::int32_t>;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Pair;

const std::string kMrpcHeader = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n";

TEST(MakeTask, AcceptsTheNamesOfRunGlueInAnyCase) {
  EXPECT_EQ(make_task({.name = "MRPC"})->name(), "mrpc");
  EXPECT_EQ(make_task({.name = "QNLI"})->name(), "qnli");
  try {
    make_task({.name = "mprc"});
    FAIL() << "found";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    EXPECT_EQ(
        std::string(failure.what()),
        fmt::format("task \"mprc\" is unknown, expected one of {}", fmt::join(task_names(), ", ")));
  }
}

TEST(Glue, AnyNumberOfThreadsReadsTheSameDataset) {
  const DataFolder folder;
  std::string rows = kMrpcHeader;
  for (int i = 0; i < 300; ++i) {
    rows += std::to_string(i % 2) + "\t1\t2\ta" + std::string(static_cast<std::size_t>(i), 'b') +
            "\tx a" + std::string(static_cast<std::size_t>(i % 7), '!') + "\n";
  }
  folder.write("train.tsv", rows);
  const auto task = make_task({.name = "mrpc"});
  ReadOptions options = folder.options();
  const Dataset expected = task->read({Split::kTrain}, tiny_tokenizer(), options);
  Dataset found;
  std::thread([&] {  // a pool changes the floating-point mode of its thread
    runtime::ThreadPool pool(3);
    options.pool = &pool;
    found = task->read({Split::kTrain}, tiny_tokenizer(), options);
  })
      .join();
  ASSERT_EQ(expected.size(), 300U);
  EXPECT_THAT(found.ids, ElementsAreArray(expected.ids));
  EXPECT_THAT(found.first_segments, ElementsAreArray(expected.first_segments));
  EXPECT_THAT(found.offsets, ElementsAreArray(expected.offsets));
  EXPECT_THAT(found.labels, ElementsAreArray(expected.labels));
}

TEST(Glue, LabelsHaveTheOrderOfHuggingFacesDataset) {
  EXPECT_THAT(make_task({.name = "mrpc"})->label_names(),
              ElementsAre("not_equivalent", "equivalent"));
  EXPECT_THAT(make_task({.name = "sst2"})->label_names(), ElementsAre("negative", "positive"));
  EXPECT_THAT(make_task({.name = "cola"})->label_names(),
              ElementsAre("unacceptable", "acceptable"));
  EXPECT_THAT(make_task({.name = "rte"})->label_names(),
              ElementsAre("entailment", "not_entailment"));
  const auto nli = ElementsAre("entailment", "neutral", "contradiction");
  EXPECT_THAT(make_task({.name = "mnli"})->label_names(), nli);
  EXPECT_THAT(make_task({.name = "ax"})->label_names(), nli);
  EXPECT_THAT(make_task({.name = "qnli"})->label_names(),
              ElementsAre("entailment", "not_entailment"));
  EXPECT_THAT(make_task({.name = "qqp"})->label_names(), ElementsAre("not_duplicate", "duplicate"));
  EXPECT_THAT(make_task({.name = "wnli"})->label_names(),
              ElementsAre("not_entailment", "entailment"));
  EXPECT_THAT(make_task({.name = "stsb"})->label_names(), ElementsAre());
  for (const std::string_view name : task_names()) {
    const auto task = make_task({.name = std::string(name)});
    ASSERT_EQ(task->name(), name);
    if (task->head() == nn::Head::kQuestionAnswering) continue;
    const bool is_regression = name == "stsb";
    EXPECT_EQ(task->head(), is_regression ? nn::Head::kRegression : nn::Head::kClassification);
    EXPECT_EQ(task->num_labels(), is_regression ? 1 : static_cast<int>(task->label_names().size()));
  }
}

TEST(Glue, TheOrderOfAModelsLabelsIsKeptIfTheyAreTheTasks) {
  const auto labels = [](const std::vector<std::string>& model) {
    return make_task({.name = "mnli", .model_labels = model})->label_names();
  };
  EXPECT_THAT(labels({"CONTRADICTION", "NEUTRAL", "ENTAILMENT"}),
              ElementsAre("contradiction", "neutral", "entailment"));
  EXPECT_THAT(labels({"LABEL_0", "LABEL_1", "LABEL_2"}),
              ElementsAre("entailment", "neutral", "contradiction"));
  EXPECT_THAT(labels({"neutral", "neutral", "entailment"}),
              ElementsAre("entailment", "neutral", "contradiction"));
  const DataFolder folder;
  folder.write("train.tsv", "sentence1\tsentence2\tgold_label\na\tb\tneutral\na\tb\t0\n");
  const auto task =
      make_task({.name = "mnli", .model_labels = {"CONTRADICTION", "NEUTRAL", "ENTAILMENT"}});
  EXPECT_THAT(task->read({Split::kTrain}, tiny_tokenizer(), folder.options()).labels,
              ElementsAre(1, 2));
}

TEST(Glue, MrpcSkipsAByteOrderMarkAndReadsQuotesAsText) {
  const DataFolder folder;
  folder.write("train.tsv",
               "\xEF\xBB\xBF" + kMrpcHeader + "1\t7\t8\ta b\tx\n0\t9\t10\t\" a\tb\"\n");
  const Dataset data =
      make_task({.name = "mrpc"})->read({Split::kTrain}, tiny_tokenizer(), folder.options());
  EXPECT_THAT(data.ids, ElementsAre(2, 8, 16, 3, 19, 3, 2, 1, 8, 3, 16, 1, 3));
  EXPECT_THAT(data.first_segments, ElementsAre(4, 4));
  EXPECT_THAT(data.offsets, ElementsAre(0, 6, 13));
  EXPECT_THAT(data.labels, ElementsAre(1, 0));
  EXPECT_EQ(data.size(), 2U);
  EXPECT_EQ(data.tokens(), 13U);
  EXPECT_THAT(data.ids_of(1), ElementsAre(2, 1, 8, 3, 16, 1, 3));
}

TEST(Glue, ColumnsAreFoundByNameInAnyOrder) {
  const DataFolder folder;
  folder.write("dev.tsv", "label\tsentence\n1\ta\n0\tb\n");
  const Dataset data =
      make_task({.name = "sst2"})->read({Split::kDev}, tiny_tokenizer(), folder.options());
  EXPECT_THAT(data.ids, ElementsAre(2, 8, 3, 2, 16, 3));
  EXPECT_THAT(data.labels, ElementsAre(1, 0));
}

TEST(Glue, ColaHasNoHeader) {
  const DataFolder folder;
  folder.write("train.tsv", "gj04\t1\t\ta\ngj04\t0\t*\tb\n");
  const Dataset data =
      make_task({.name = "cola"})->read({Split::kTrain}, tiny_tokenizer(), folder.options());
  EXPECT_THAT(data.ids, ElementsAre(2, 8, 3, 2, 16, 3));
  EXPECT_THAT(data.labels, ElementsAre(1, 0));
}

TEST(Glue, RteLabelsAreWords) {
  const DataFolder folder;
  folder.write(
      "train.tsv",
      "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n1\ta\tb\tentailment\n");
  const Dataset data =
      make_task({.name = "rte"})->read({Split::kTrain}, tiny_tokenizer(), folder.options());
  EXPECT_THAT(data.labels, ElementsAre(1, 0));
  EXPECT_THAT(data.ids, ElementsAre(2, 8, 3, 16, 3, 2, 8, 3, 16, 3));
}

TEST(Glue, AcceptsCrlfEmptyLinesAndNoFinalNewline) {
  const DataFolder folder;
  folder.write("train.tsv", "sentence\tlabel\r\na\t1\r\n\r\nb\t0");
  const Dataset data =
      make_task({.name = "sst2"})->read({Split::kTrain}, tiny_tokenizer(), folder.options());
  EXPECT_THAT(data.labels, ElementsAre(1, 0));
}

TEST(Glue, MaxSeqLengthTruncatesExamplesAndMaxSamplesLimitsRows) {
  const DataFolder folder;
  folder.write("train.tsv", kMrpcHeader + "1\t7\t8\ta a a a\tx\n1\t7\t8\tb\tx\nbroken\n");
  ReadOptions options = folder.options();
  options.max_seq_length = 6;
  options.max_samples = 2;
  const Dataset data =
      make_task({.name = "mrpc"})->read({Split::kTrain}, tiny_tokenizer(), options);
  EXPECT_THAT(data.ids, ElementsAre(2, 8, 8, 3, 19, 3, 2, 16, 3, 19, 3));
}

TEST(Glue, ErrorsNameMissingDirectoriesAndFiles) {
  const DataFolder folder;
  EXPECT_THAT(failure_of("mrpc", folder), HasSubstr((folder.path() / "train.tsv").string()));
  ReadOptions options{.data_dir = "/nowhere/MRPC"};
  try {
    make_task({.name = "mrpc"})->read({Split::kTrain}, tiny_tokenizer(), options);
    FAIL() << "read";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kData);
    EXPECT_STREQ(
        failure.what(),
        "/nowhere/MRPC: no such directory, expected the data directory with train.tsv in it");
  }
  folder.write("file", "");
  options.data_dir = folder.path() / "file";
  try {
    make_task({.name = "mrpc"})->read({Split::kTrain}, tiny_tokenizer(), options);
    FAIL() << "read";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("/file: is a file, expected the data directory with "));
  }
}

TEST(Glue, AMissingColumnErrorListsTheColumnsFound) {
  EXPECT_THAT(failure_of("mrpc", "Quality\t#1 String\tString 2\n1\ta\tb\n"),
              HasSubstr("train.tsv: the column \"#2 String\" is missing, found \"Quality\", "
                        "\"#1 String\", \"String 2\""));
}

TEST(Glue, AWrongNumberOfFieldsIsRefused) {
  EXPECT_THAT(failure_of("sst2", "sentence\tlabel\na\t1\nb\t0\tx\n"),
              HasSubstr("train.tsv:3: the line has 3 tab-separated fields, expected 2"));
  EXPECT_THAT(failure_of("sst2", "sentence\tlabel\na\n"),
              HasSubstr("train.tsv:2: the line has 1 tab-separated field, expected 2"));
  EXPECT_THAT(failure_of("cola", "sentence\tlabel\na\t1\n"),
              HasSubstr("train.tsv:1: the line has 2 tab-separated fields, expected 4"));
}

TEST(Glue, UnknownLabelErrorsListTheKnownLabels) {
  EXPECT_THAT(failure_of("sst2", "sentence\tlabel\na\t1\nb\t2\n"),
              HasSubstr("train.tsv:3: the label is \"2\", expected 0 (negative) or 1 (positive)"));
  EXPECT_THAT(failure_of("rte", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tneutral\n"),
              HasSubstr("the label is \"neutral\", expected 0 (entailment) or 1 (not_entailment)"));
  EXPECT_THAT(failure_of("cola", "gj04\t\t\ta\n"), HasSubstr("train.tsv:1: the label is \"\""));
}

TEST(Glue, InvalidUtf8ErrorsNameThePosition) {
  EXPECT_THAT(failure_of("sst2", "sentence\tlabel\na\t1\nb\xFF\t0\n"),
              HasSubstr("train.tsv:3: byte 2 of the line (byte 21 of the file) is not valid "
                        "UTF-8"));
}

TEST(Glue, AFileWithoutRowsIsRefused) {
  EXPECT_THAT(failure_of("sst2", ""), HasSubstr("train.tsv: has no rows"));
  EXPECT_THAT(failure_of("sst2", "sentence\tlabel\n"), HasSubstr("train.tsv: has no rows"));
}

TEST(Glue, ATooLongLineIsRefused) {
  const std::string sentence((1 << 20) + 1, 'a');
  EXPECT_THAT(failure_of("sst2", "sentence\tlabel\n" + sentence + "\t1\n"),
              AllOf(HasSubstr("train.tsv:2: the line has 1048579 bytes"),
                    HasSubstr("expected at most 1048576")));
}

TEST(Glue, MetricsAreThoseOfRunGlue) {
  const Dataset data({.ids = {5, 5, 5, 5},
                      .offsets = {0, 1, 2, 3, 4},
                      .first_segments = {1, 1, 1, 1},
                      .labels = {1, 1, 0, 0}});
  const std::vector<float> logits = {0, 1, 1, 0, 1, 0, 0, 1};  // predicts 1 0 0 1
  EXPECT_THAT(make_task({.name = "mrpc"})->score({Split::kDev}, logits, data).metrics,
              ElementsAre(Pair("accuracy", 0.5), Pair("f1", 0.5), Pair("combined_score", 0.5)));
  EXPECT_THAT(make_task({.name = "sst2"})->score({Split::kDev}, logits, data).metrics,
              ElementsAre(Pair("accuracy", 0.5)));
  EXPECT_THAT(make_task({.name = "rte"})->score({Split::kDev}, logits, data).metrics,
              ElementsAre(Pair("accuracy", 0.5)));
  EXPECT_THAT(make_task({.name = "cola"})->score({Split::kDev}, logits, data).metrics,
              ElementsAre(Pair("matthews_correlation", 0.0)));
}

struct PublicFile {
  const char* task;
  DataPart part;
  const char* name;
  const char* content;  // one row as in the public download: sentences "a" and "b"
  Ids labels;
};

// The headers are those of the public GLUE download.
TEST(Glue, PublicFilesOfEveryTaskAreRead) {
  const std::vector<PublicFile> files = {
      {"cola", {Split::kTest}, "test.tsv", "index\tsentence\n0\ta\n", {}},
      {"sst2", {Split::kTest}, "test.tsv", "index\tsentence\n0\ta\n", {}},
      {"mrpc",
       {Split::kTest},
       "test.tsv",
       "\xEF\xBB\xBFindex\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t10\t11\ta\tb\n",
       {}},
      {"qqp",
       {Split::kTrain},
       "train.tsv",
       "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n133273\t213221\t213222\ta\tb\t1\n",
       {1}},
      {"qqp", {Split::kTest}, "test.tsv", "id\tquestion1\tquestion2\n0\ta\tb\n", {}},
      {"mnli",
       {Split::kTrain},
       "train.tsv",
       "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
       "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
       "0\t31193\t31193n\tgovernment\t( x )\t( x )\t(ROOT x)\t(ROOT x)\ta\tb\tneutral\tneutral\n",
       {1}},
      {"mnli",
       {Split::kDev, 0},
       "dev_matched.tsv",
       "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
       "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\t"
       "label5\tgold_label\n"
       "0\t1\t1e\tslate\tx\tx\tx\tx\ta\tb\tneutral\tcontradiction\tcontradiction\tneutral\t"
       "contradiction\tcontradiction\n",
       {2}},
      {"mnli",
       {Split::kDev, 1},
       "dev_mismatched.tsv",
       "index\tsentence1\tsentence2\tgold_label\n0\ta\tb\tentailment\n",
       {0}},
      {"mnli",
       {Split::kTest, 1},
       "test_mismatched.tsv",
       "index\tsentence1\tsentence2\n0\ta\tb\n",
       {}},
      {"qnli",
       {Split::kDev},
       "dev.tsv",
       "index\tquestion\tsentence\tlabel\n0\ta\tb\tnot_entailment\n",
       {1}},
      {"wnli", {Split::kDev}, "dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n", {1}},
      {"ax", {Split::kTest}, "AX.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n", {}},
      {"ax", {Split::kTest}, "diagnostic.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n", {}},
  };
  for (const PublicFile& file : files) {
    const DataFolder folder;
    folder.write(file.name, file.content);
    const auto task = make_task({.name = std::string(file.task)});
    const Dataset data = task->read(file.part, tiny_tokenizer(), folder.options());
    const bool is_pair = std::string(file.task) != "cola" && std::string(file.task) != "sst2";
    EXPECT_THAT(data.ids, ElementsAreArray(is_pair ? Ids{2, 8, 3, 16, 3} : Ids{2, 8, 3}))
        << file.task;
    EXPECT_THAT(data.labels, ElementsAreArray(file.labels)) << file.task;
    EXPECT_EQ(data.has_labels(), !file.labels.empty()) << file.task;
  }
}

TEST(Glue, MnliHasTwoDevAndTwoTestFiles) {
  const auto task = make_task({.name = "mnli"});
  EXPECT_EQ(task->parts(Split::kTrain), 1U);
  EXPECT_EQ(task->parts(Split::kDev), 2U);
  EXPECT_EQ(task->parts(Split::kTest), 2U);
  EXPECT_EQ(task->part_name({Split::kDev, 0}), "");
  EXPECT_EQ(task->part_name({Split::kDev, 1}), "mm");
  EXPECT_EQ(task->file_name({Split::kDev, 0}), "dev_matched.tsv");
  EXPECT_EQ(task->file_name({Split::kTest, 1}), "test_mismatched.tsv");
}

TEST(Glue, TablesWithoutTrainingRowsHaveNoBaselines) {
  const auto tables = std::make_shared<DataTables>(
      "glue/mrpc", DataTables::Format::kParquet,
      DataTables::Splits{{"validation", {"validation-00000-of-00001.parquet"}}});
  const auto task = make_task({.name = "mrpc", .tables = tables});
  EXPECT_TRUE(task->baselines("", 0).empty());
}

TEST(Glue, AxHasATestSplitOnly) {
  const auto task = make_task({.name = "ax"});
  EXPECT_EQ(task->parts(Split::kTrain), 0U);
  EXPECT_EQ(task->parts(Split::kDev), 0U);
  EXPECT_EQ(task->parts(Split::kTest), 1U);
  const DataFolder folder;
  EXPECT_TRUE(task->baselines(folder.path(), 0).empty());
  try {
    task->read({Split::kTrain}, tiny_tokenizer(), folder.options());
    FAIL() << "read";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    EXPECT_THAT(failure.what(), HasSubstr("task \"ax\" has a test split only"));
  }
}

TEST(Glue, StsbScoresAreNumbers) {
  const DataFolder folder;
  const std::string header =
      "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n";
  const std::string begin = "0\tmain-captions\tMSRvid\t2012test\t0001\tnone\tnone\t";
  folder.write("dev.tsv", header + begin + "a\tb\t5.000\n" + begin + "a\tb\t3.8\n");
  const Dataset data =
      make_task({.name = "stsb"})->read({Split::kDev}, tiny_tokenizer(), folder.options());
  EXPECT_THAT(data.ids, ElementsAre(2, 8, 3, 16, 3, 2, 8, 3, 16, 3));
  EXPECT_THAT(data.values, ElementsAre(5.0F, 3.8F));
  EXPECT_TRUE(data.labels.empty());
  EXPECT_TRUE(data.has_labels());
  for (const char* bad : {"high", "", "nan", "inf", "1e99", "3.8x"}) {
    EXPECT_THAT(failure_of("stsb", header + begin + "a\tb\t" + bad + "\n"),
                HasSubstr(std::string("train.tsv:2: the score is \"") + bad +
                          "\", expected a finite number"));
  }
}

// As in the hub's data set, which drops such rows of QQP.
TEST(Glue, QqpRowsWithMissingFieldsAreSkippedAndCounted) {
  const DataFolder folder;
  folder.write("train.tsv",
               "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
               "1\t1\t2\ta\tb\t1\n"
               "2\t3\t4\ta\n"
               "3\t3\t4\ta\tb\t\n"
               "4\t5\t6\tb\t\t0\n");
  const Dataset data =
      make_task({.name = "qqp"})->read({Split::kTrain}, tiny_tokenizer(), folder.options());
  EXPECT_THAT(data.labels, ElementsAre(1, 0));
  EXPECT_THAT(data.ids, ElementsAre(2, 8, 3, 16, 3, 2, 16, 3, 3))
      << "an empty question is not missing";
  const std::string path = (folder.path() / "train.tsv").string();
  EXPECT_THAT(data.warnings, ElementsAre(path +
                                         ": skipped 2 rows with missing fields, the first "
                                         "at " +
                                         path + ":3"));
}

TEST(Glue, MnliRowsWithoutAgreementAreSkippedAndCounted) {
  const DataFolder folder;
  folder.write("train.tsv", "sentence1\tsentence2\tgold_label\na\tb\t-\na\tb\tcontradiction\n");
  const Dataset data =
      make_task({.name = "mnli"})->read({Split::kTrain}, tiny_tokenizer(), folder.options());
  EXPECT_THAT(data.labels, ElementsAre(2));
  EXPECT_THAT(data.warnings, ElementsAre(HasSubstr("skipped 1 row with the label \"-\"")));
}

// Python's text files, with which the hub's data set was made, end lines at "\r" too.
TEST(Glue, ACarriageReturnEndsALine) {
  const DataFolder folder;
  folder.write("train.tsv", "sentence\tlabel\ra\t1\rb\t0\r");
  const Dataset data =
      make_task({.name = "sst2"})->read({Split::kTrain}, tiny_tokenizer(), folder.options());
  EXPECT_THAT(data.labels, ElementsAre(1, 0));
}

// Rows in memory with the columns of the hub's data set.
class HubRows : public RowSource {
 public:
  HubRows(std::vector<std::string> columns, std::vector<std::vector<Value>> rows)
      : columns_(std::move(columns)), rows_(std::move(rows)) {}
  const std::vector<std::string>& columns() const override { return columns_; }
  bool next() override { return next_++ < rows_.size(); }
  Value value(std::size_t column) const override { return rows_[next_ - 1][column]; }
  std::string name() const override { return "hub"; }
  std::string location() const override { return "hub: row " + std::to_string(next_); }

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<Value>> rows_;
  std::size_t next_ = 0;
};

constexpr Value string(const char* text) { return {ValueKind::kString, text}; }
constexpr Value integer(const char* text) { return {ValueKind::kInteger, text}; }

TEST(Glue, RowsMayComeWithTheColumnsOfTheHub) {
  const auto open = [](const DataPart& part,
                       const columnar::Selection& columns) -> std::unique_ptr<RowSource> {
    // Other columns may have any type.
    EXPECT_EQ(columns.required, part.split == Split::kTest
                                    ? std::vector<std::string>({"premise", "hypothesis"})
                                    : std::vector<std::string>({"premise", "hypothesis", "label"}));
    EXPECT_THAT(columns.optional, ElementsAre("idx"));
    const Value label = part.split == Split::kTest ? integer("-1") : integer("2");
    return std::make_unique<HubRows>(
        std::vector<std::string>{"premise", "hypothesis", "label", "idx"},
        std::vector<std::vector<Value>>{{string("a"), string("b"), label, integer("7")}});
  };
  const auto task = make_task({.name = "mnli", .open_rows = open});
  const Dataset train = task->read({Split::kTrain}, tiny_tokenizer(), {});
  EXPECT_THAT(train.ids, ElementsAre(2, 8, 3, 16, 3));
  EXPECT_THAT(train.labels, ElementsAre(2));
  const Dataset test = task->read({Split::kTest, 1}, tiny_tokenizer(), {});
  EXPECT_FALSE(test.has_labels());
  const std::vector<float> logits = {0, 1, 0};
  EXPECT_EQ(task->score({Split::kTest, 1}, logits, test).prediction_files.at("MNLI-mm.tsv"),
            "index\tprediction\n7\tneutral\n");
}

TEST(Glue, ARowOfTheHubWithoutALabelIsRefused) {
  const auto open = [](const DataPart&, const columnar::Selection&) -> std::unique_ptr<RowSource> {
    return std::make_unique<HubRows>(
        std::vector<std::string>{"sentence", "label", "idx"},
        std::vector<std::vector<Value>>{{string("a"), integer("-1"), integer("0")}});
  };
  try {
    make_task({.name = "sst2", .open_rows = open})->read({Split::kTrain}, tiny_tokenizer(), {});
    FAIL() << "read";
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(),
                 "hub: row 1: the label is \"-1\", expected 0 (negative) or 1 (positive)");
  }
}

TEST(Glue, NamesItsInputFiles) {
  const DataFolder folder;
  const std::filesystem::path directory = folder.options().data_dir;
  EXPECT_THAT(make_task({.name = "mnli"})->input_files({Split::kDev, 1}, directory),
              ElementsAre(directory / "dev_mismatched.tsv"));
  const auto tables = std::make_shared<DataTables>("glue/mrpc", DataTables::Format::kParquet,
                                                   DataTables::Splits{{"train", {"a", "b"}}});
  const auto from_hub = make_task({.name = "mrpc", .tables = tables});
  EXPECT_THAT(from_hub->input_files({Split::kTrain}, directory), ElementsAre("a", "b"));
  EXPECT_THAT(from_hub->input_files({Split::kDev}, directory), ElementsAre());
  const auto from_rows =
      make_task({.name = "mrpc", .open_rows = [](const DataPart&, const columnar::Selection&) {
                   return std::unique_ptr<RowSource>();
                 }});
  EXPECT_THAT(from_rows->input_files({Split::kTrain}, directory), ElementsAre());
}

TEST(Glue, StsbMetricsAreCorrelationsAndTheirMean) {
  const Dataset data({.ids = {5, 5, 5, 5},
                      .offsets = {0, 1, 2, 3, 4},
                      .first_segments = {1, 1, 1, 1},
                      .values = {0, 1, 2, 5}});
  const std::vector<float> logits = {0.5F, 0.25F, 3, 4};
  const Metrics found = make_task({.name = "stsb"})->score({Split::kDev}, logits, data).metrics;
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].first, "pearson");
  EXPECT_EQ(found[1].first, "spearmanr");
  EXPECT_EQ(found[2].first, "combined_score");
  EXPECT_NEAR(found[1].second, 0.8, 1e-15);
  EXPECT_EQ(found[2].second, (found[0].second + found[1].second) / 2);
}

std::string refusal_of_ids(const Dataset& data, std::int64_t vocab_size,
                           std::int64_t type_vocab_size) {
  try {
    check_ids(data, vocab_size, type_vocab_size, "m/config.json");
    return "accepted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kModel);
    return failure.what();
  }
}

TEST(Dataset, PairsNeedEmbeddingsOfTwoTokenTypes) {
  DatasetLists lists;
  lists.append({.ids = {2, 3}, .first_segment = 2});
  lists.append({.ids = {2, 9, 3}, .first_segment = 2});
  const Dataset data(std::move(lists));
  EXPECT_EQ(refusal_of_ids(data, 20, 0), "accepted") << "a model without token types";
  EXPECT_EQ(refusal_of_ids(data, 20, 1),
            "m/config.json: type_vocab_size is 1, expected at least 2, because example 1 has two "
            "texts");
}

TEST(Dataset, TokenIdsBeyondTheVocabularyAreRefused) {
  DatasetLists lists;
  lists.append({.ids = {2, 3}, .first_segment = 2});
  lists.append({.ids = {2, 19, 3}, .first_segment = 3});
  const Dataset data(std::move(lists));
  EXPECT_EQ(refusal_of_ids(data, 20, 2), "accepted");
  EXPECT_EQ(
      refusal_of_ids(data, 19, 2),
      "m/config.json: vocab_size is 19, expected more than 19, the id of a token in example 1: "
      "tokenizer and model do not belong together");
}

}  // namespace
}  // namespace tilewright::tasks
