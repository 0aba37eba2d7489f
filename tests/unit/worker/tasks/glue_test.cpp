#include "worker/tasks/glue/glue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/tasks/builders.h"

namespace tilewright::tasks {
namespace {

using Ids = std::vector<std::int32_t>;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const std::string kMrpcHeader = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n";

TEST(FindTask, AcceptsTheNamesOfRunGlueInAnyCase) {
  EXPECT_THAT(task_names(), ElementsAre("cola", "mrpc", "rte", "sst2", "squad", "squad_v2"));
  EXPECT_EQ(find_task("MRPC")->name(), "mrpc");
  try {
    find_task("mprc");
    FAIL() << "found";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    EXPECT_STREQ(failure.what(),
                 "task \"mprc\" is unknown, expected one of cola, mrpc, rte, sst2, "
                 "squad, squad_v2");
  }
}

TEST(Glue, LabelsHaveTheOrderOfHuggingFacesDataset) {
  EXPECT_THAT(find_task("mrpc")->label_names(), ElementsAre("not_equivalent", "equivalent"));
  EXPECT_THAT(find_task("sst2")->label_names(), ElementsAre("negative", "positive"));
  EXPECT_THAT(find_task("cola")->label_names(), ElementsAre("unacceptable", "acceptable"));
  EXPECT_THAT(find_task("rte")->label_names(), ElementsAre("entailment", "not_entailment"));
  for (const char* name : {"cola", "mrpc", "rte", "sst2"}) {
    EXPECT_EQ(find_task(name)->num_labels(), 2);
    EXPECT_EQ(find_task(name)->head(), nn::Head::kClassification);
  }
}

TEST(Glue, MrpcSkipsAByteOrderMarkAndReadsQuotesAsText) {
  const DataFolder folder;
  folder.write("train.tsv",
               "\xEF\xBB\xBF" + kMrpcHeader + "1\t7\t8\ta b\tx\n0\t9\t10\t\" a\tb\"\n");
  const Dataset data = find_task("mrpc")->read({Split::kTrain}, tiny_tokenizer(), folder.options());
  EXPECT_EQ(data.ids, (Ids{2, 8, 16, 3, 19, 3, 2, 1, 8, 3, 16, 1, 3}));
  EXPECT_EQ(data.types, (Ids{0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_THAT(data.offsets, ElementsAre(0, 6, 13));
  EXPECT_EQ(data.labels, (Ids{1, 0}));
  EXPECT_EQ(data.size(), 2U);
  EXPECT_EQ(data.tokens(), 13U);
  EXPECT_THAT(data.ids_of(1), ElementsAre(2, 1, 8, 3, 16, 1, 3));
  EXPECT_THAT(data.types_of(0), ElementsAre(0, 0, 0, 0, 1, 1));
}

TEST(Glue, ColumnsAreFoundByNameInAnyOrder) {
  const DataFolder folder;
  folder.write("dev.tsv", "label\tsentence\n1\ta\n0\tb\n");
  const Dataset data = find_task("sst2")->read({Split::kDev}, tiny_tokenizer(), folder.options());
  EXPECT_EQ(data.ids, (Ids{2, 8, 3, 2, 16, 3}));
  EXPECT_EQ(data.labels, (Ids{1, 0}));
}

TEST(Glue, ColaHasNoHeader) {
  const DataFolder folder;
  folder.write("train.tsv", "gj04\t1\t\ta\ngj04\t0\t*\tb\n");
  const Dataset data = find_task("cola")->read({Split::kTrain}, tiny_tokenizer(), folder.options());
  EXPECT_EQ(data.ids, (Ids{2, 8, 3, 2, 16, 3}));
  EXPECT_EQ(data.labels, (Ids{1, 0}));
}

TEST(Glue, RteLabelsAreWords) {
  const DataFolder folder;
  folder.write(
      "train.tsv",
      "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n1\ta\tb\tentailment\n");
  const Dataset data = find_task("rte")->read({Split::kTrain}, tiny_tokenizer(), folder.options());
  EXPECT_EQ(data.labels, (Ids{1, 0}));
  EXPECT_EQ(data.ids, (Ids{2, 8, 3, 16, 3, 2, 8, 3, 16, 3}));
}

TEST(Glue, AcceptsCrlfEmptyLinesAndNoFinalNewline) {
  const DataFolder folder;
  folder.write("train.tsv", "sentence\tlabel\r\na\t1\r\n\r\nb\t0");
  const Dataset data = find_task("sst2")->read({Split::kTrain}, tiny_tokenizer(), folder.options());
  EXPECT_EQ(data.labels, (Ids{1, 0}));
}

TEST(Glue, MaxSeqLengthTruncatesExamplesAndMaxSamplesLimitsRows) {
  const DataFolder folder;
  folder.write("train.tsv", kMrpcHeader + "1\t7\t8\ta a a a\tx\n1\t7\t8\tb\tx\nbroken\n");
  ReadOptions options = folder.options();
  options.max_seq_length = 6;
  options.max_samples = 2;
  const Dataset data = find_task("mrpc")->read({Split::kTrain}, tiny_tokenizer(), options);
  EXPECT_EQ(data.ids, (Ids{2, 8, 8, 3, 19, 3, 2, 16, 3, 19, 3}));
  options.max_seq_length = 2;
  EXPECT_THROW(find_task("mrpc")->read({Split::kTrain}, tiny_tokenizer(), options), Failure);
}

TEST(Glue, ErrorsNameMissingDirectoriesAndFiles) {
  const DataFolder folder;
  EXPECT_THAT(failure_of("mrpc", folder), HasSubstr((folder.path() / "train.tsv").string()));
  ReadOptions options{.data_dir = "/nowhere/MRPC"};
  try {
    find_task("mrpc")->read({Split::kTrain}, tiny_tokenizer(), options);
    FAIL() << "read";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kData);
    EXPECT_STREQ(
        failure.what(),
        "/nowhere/MRPC: no such directory, expected the data directory with train.tsv in it");
  }
}

TEST(Glue, AMissingColumnErrorListsTheColumnsFound) {
  EXPECT_THAT(failure_of("mrpc", "Quality\t#1 String\tString 2\n1\ta\tb\n"),
              HasSubstr("train.tsv:1: the column \"#2 String\" is missing, found \"Quality\", "
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
  Dataset data;
  data.offsets = {0, 1, 2, 3, 4};
  data.labels = {1, 1, 0, 0};
  const std::vector<float> logits = {0, 1, 1, 0, 1, 0, 0, 1};  // predicts 1 0 0 1
  EXPECT_THAT(find_task("mrpc")->metrics(logits, data),
              ElementsAre(Pair("accuracy", 0.5), Pair("f1", 0.5), Pair("combined_score", 0.5)));
  EXPECT_THAT(find_task("sst2")->metrics(logits, data), ElementsAre(Pair("accuracy", 0.5)));
  EXPECT_THAT(find_task("rte")->metrics(logits, data), ElementsAre(Pair("accuracy", 0.5)));
  EXPECT_THAT(find_task("cola")->metrics(logits, data),
              ElementsAre(Pair("matthews_correlation", 0.0)));
}

TEST(Dataset, TokenIdsBeyondTheVocabularyAreRefused) {
  Dataset data;
  data.append({.ids = {2, 3}, .types = {0, 0}});
  data.append({.ids = {2, 19, 3}, .types = {0, 0, 0}});
  EXPECT_NO_THROW(check_ids(data, 20));
  try {
    check_ids(data, 19);
    FAIL() << "accepted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kData);
    EXPECT_THAT(failure.what(), HasSubstr("example 1 has the token id 19"));
    EXPECT_THAT(failure.what(), HasSubstr("vocab_size 19"));
  }
}

}  // namespace
}  // namespace tilewright::tasks
