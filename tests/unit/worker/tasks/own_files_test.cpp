#include "worker/tasks/own_files/own_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/tasks/builders.h"

namespace tilewright::tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// Own files in a folder: "train.csv", "dev.json", ...
class OwnFiles {
 public:
  OwnFiles& train(const std::string& name, const std::string& content) {
    options_.train_file = write(name, content);
    return *this;
  }
  OwnFiles& dev(const std::string& name, const std::string& content) {
    options_.validation_file = write(name, content);
    return *this;
  }
  OwnFiles& test(const std::string& name, const std::string& content) {
    options_.test_file = write(name, content);
    return *this;
  }
  TaskOptions& options() { return options_; }

  std::unique_ptr<const Task> task() const { return make_task(options_); }
  Dataset read(Split split) const { return task()->read({split}, tiny_tokenizer(), {}); }
  // The message of the Failure(kData) without the folder.
  std::string failure(Split split = Split::kTrain) const {
    try {
      static_cast<void>(read(split));
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kData);
      const std::string message = failure.what();
      const std::string directory = folder_->path().string() + "/";
      EXPECT_EQ(message.rfind(directory, 0), 0U) << message;
      return message.substr(directory.size());
    }
    return "no failure";
  }

 private:
  std::string write(const std::string& name, const std::string& content) {
    folder_->write(name, content);
    return (folder_->path() / name).string();
  }

  std::shared_ptr<const DataFolder> folder_ = std::make_shared<const DataFolder>();
  TaskOptions options_;
};

std::string usage_error(const TaskOptions& options) {
  try {
    make_task(options);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    return failure.what();
  }
  return "no failure";
}

TEST(OwnFiles, StringLabelsAreSorted) {
  auto files = OwnFiles().train("train.csv", "text,label\na,pear\nb,Zebra\nx,apple\na,pear\n");
  EXPECT_THAT(files.task()->label_names(), ElementsAre("Zebra", "apple", "pear"));
  const Dataset data = files.read(Split::kTrain);
  EXPECT_THAT(data.labels, ElementsAre(2, 0, 1, 2));
  EXPECT_THAT(data.ids, ElementsAre(2, 8, 3, 2, 16, 3, 2, 19, 3, 2, 8, 3));
  EXPECT_EQ(files.task()->num_labels(), 3);
  EXPECT_THAT(files.task()->input_files({Split::kTrain}, ""),
              ElementsAre(files.options().train_file));
}

TEST(OwnFiles, IntegerLabelsAreSortedByValue) {
  const auto csv = OwnFiles().train("train.csv", "label,text\n10,a\n-1,b\n9,x\n010,a\n");
  EXPECT_THAT(csv.task()->label_names(), ElementsAre("-1", "9", "10"));
  EXPECT_THAT(csv.read(Split::kTrain).labels, ElementsAre(2, 0, 1, 2));
  const auto json = OwnFiles().train(
      "train.jsonl", "{\"text\": \"a\", \"label\": 10}\n{\"text\": \"b\", \"label\": 9}\n");
  EXPECT_THAT(json.task()->label_names(), ElementsAre("9", "10"));
  const auto strings = OwnFiles().train(
      "train.jsonl", "{\"text\": \"a\", \"label\": \"10\"}\n{\"text\": \"b\", \"label\": \"9\"}\n");
  EXPECT_THAT(strings.task()->label_names(), ElementsAre("10", "9")) << "strings of digits";
  const auto mixed = OwnFiles().train("train.csv", "text,label\na,1\nb,one\n");
  EXPECT_THAT(mixed.task()->label_names(), ElementsAre("1", "one"));
}

TEST(OwnFiles, BooleanLabelsAreClasses) {
  const auto json = OwnFiles().train(
      "train.json", "[{\"text\": \"a\", \"label\": true}, {\"text\": \"b\", \"label\": false}]");
  EXPECT_THAT(json.task()->label_names(), ElementsAre("False", "True"));
  EXPECT_THAT(json.read(Split::kTrain).labels, ElementsAre(1, 0));
  // Case does not matter in a text file, as in pandas.read_csv.
  auto csv = OwnFiles()
                 .train("train.csv", "text,label\na,True\nb,true\nx,FALSE\na,False\nb,tRUE\n")
                 .dev("dev.csv", "text,label\na,TRUE\nb,false\n");
  EXPECT_THAT(csv.task()->label_names(), ElementsAre("False", "True"));
  EXPECT_THAT(csv.read(Split::kTrain).labels, ElementsAre(1, 1, 0, 0, 1));
  EXPECT_THAT(csv.read(Split::kDev).labels, ElementsAre(1, 0));
  csv.options().train_file.clear();
  csv.options().model_labels = {"True", "False"};
  EXPECT_THAT(csv.read(Split::kDev).labels, ElementsAre(0, 1));
  EXPECT_EQ(OwnFiles().train("train.csv", "text,label\na,True\nb,true\n").failure(),
            "train.csv: all labels are \"True\", expected at least two different ones");
}

TEST(OwnFiles, TrueAndFalseBesideOtherLabelsAreStrings) {
  for (const char* other : {"yes", "1", " true"}) {
    const auto csv = OwnFiles().train(
        "train.csv", fmt::format("text,label\na,True\nb,true\nx,FALSE\na,{}\n", other));
    EXPECT_EQ(csv.task()->num_labels(), 4) << other;
  }
  const auto json = OwnFiles().train(
      "train.json", "{\"t\": \"a\", \"label\": \"True\"}\n{\"t\": \"b\", \"label\": \"true\"}\n");
  EXPECT_THAT(json.task()->label_names(), ElementsAre("True", "true"));
}

TEST(OwnFiles, RealLabelsMakeARegression) {
  const auto csv = OwnFiles()
                       .train("train.csv", "text,label\na,1\nb,2.5\n")
                       .dev("dev.csv", "text,label\na,3\nb,5\n");
  const auto task = csv.task();
  EXPECT_EQ(task->head(), nn::Head::kRegression);
  EXPECT_EQ(task->num_labels(), 1);
  EXPECT_THAT(task->label_names(), IsEmpty());
  EXPECT_THAT(csv.read(Split::kTrain).values, ElementsAre(1, 2.5F));
  const Dataset dev = csv.read(Split::kDev);
  EXPECT_THAT(dev.values, ElementsAre(3, 5));
  EXPECT_THAT(task->score({Split::kDev}, std::vector<float>{4, 3}, dev).metrics,
              ElementsAre(Pair("mse", 2.5)));
  const auto baselines = task->baselines("", 0);
  ASSERT_EQ(baselines.size(), 1U);
  EXPECT_EQ(baselines[0].name, "mean");
  EXPECT_THAT(baselines[0].metrics, ElementsAre(Pair("mse", (1.25 * 1.25 + 3.25 * 3.25) / 2)));
  const auto json = OwnFiles().train(
      "train.json", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": 2.0}\n");
  EXPECT_EQ(json.task()->head(), nn::Head::kRegression);
}

// As pandas reads them.
TEST(OwnFiles, NumbersMayHaveBlanksAndAPlusSign) {
  const auto reals = OwnFiles().train("train.csv", "text,label\na,+1.5\nb, -0.5 \n");
  EXPECT_EQ(reals.task()->head(), nn::Head::kRegression);
  EXPECT_THAT(reals.read(Split::kTrain).values, ElementsAre(1.5F, -0.5F));
  const auto integers = OwnFiles().train("train.csv", "text,label\na,1\nb,+1 \nc, 0\n");
  EXPECT_THAT(integers.task()->label_names(), ElementsAre("0", "1"));
  EXPECT_THAT(integers.read(Split::kTrain).labels, ElementsAre(1, 1, 0));
  const auto names = OwnFiles().train("train.csv", "text,label\na,+-1\nb,1\n");
  EXPECT_THAT(names.task()->label_names(), ElementsAre("+-1", "1"));
}

TEST(OwnFiles, Sentence1AndSentence2AreTheSentences) {
  const auto files =
      OwnFiles().train("train.csv", "id,sentence2,label,sentence1\n0,b,1,a\n1,x,0,a\n");
  EXPECT_THAT(files.read(Split::kTrain).ids, ElementsAre(2, 8, 3, 16, 3, 2, 8, 3, 19, 3));
}

TEST(OwnFiles, OtherwiseTheFirstTwoColumnsAreTheSentences) {
  const auto two =
      OwnFiles().train("train.tsv", "question\tlabel\tanswer\tsource\na\t1\tb\tx\na\t0\tb\tx\n");
  EXPECT_THAT(two.read(Split::kTrain).ids, ElementsAre(2, 8, 3, 16, 3, 2, 8, 3, 16, 3));
  const auto one = OwnFiles().train("train.tsv", "label\tsentence1\n1\ta\n0\tb\n");
  EXPECT_THAT(one.read(Split::kTrain).ids, ElementsAre(2, 8, 3, 2, 16, 3));
}

TEST(OwnFiles, SayWhichColumnsAndLabelsTheyHave) {
  const auto files = OwnFiles().train("train.csv", "id,text,label\nx,a,pos\nb,x,neg\n");
  EXPECT_EQ(files.task()->layout(),
            "\"id\" and \"text\" (sentences), \"label\"; classification, 2 labels: neg, pos");
  EXPECT_THAT(files.task()->layout_warnings(), IsEmpty());
  const auto reals = OwnFiles().train("train.csv", "text,label\na,1\nb,2.5\n");
  EXPECT_EQ(reals.task()->layout(), "\"text\" (sentences), \"label\"; regression");
  EXPECT_THAT(reals.task()->layout_warnings(), IsEmpty());
  auto test = OwnFiles().test("test.csv", "text\na\n");
  test.options().model_labels = {"0", "1"};
  EXPECT_EQ(test.task()->layout(), "\"text\" (sentences); classification, 2 labels: 0, 1");
  EXPECT_EQ(make_task({.name = "mrpc"})->layout(), "");
}

TEST(OwnFiles, SayTheirLayoutInPrintableAndBoundedText) {
  std::string rows = "\x1b[31m" + std::string(100, 'c') + ",label\n";
  for (int label = 10; label < 40; ++label) rows += fmt::format("a,{}{:090}\n", "L", label);
  const std::string layout = OwnFiles().train("train.csv", rows).task()->layout();
  EXPECT_THAT(layout, HasSubstr("\"\\x1b[31mccc"));
  EXPECT_THAT(layout, HasSubstr("30 labels: L"));
  EXPECT_EQ(layout.find('\x1b'), std::string::npos);
  EXPECT_LT(layout.size(), 400U);
}

TEST(OwnFiles, WarnOfColumnsThatAreNotUsed) {
  const auto files = OwnFiles().train("train.csv", "id,text,topic,label\nx,a,b,1\na,b,x,0\n");
  EXPECT_THAT(files.task()->layout_warnings(),
              ElementsAre(EndsWith("train.csv: not used: \"topic\"; the sentences are in the first "
                                   "two columns, \"id\", \"text\", because no columns are named "
                                   "sentence1 and sentence2")));
  const auto named =
      OwnFiles().train("train.csv", "id,sentence1,sentence2,label\nx,a,b,1\na,b,x,0\n");
  EXPECT_THAT(named.task()->layout_warnings(), IsEmpty());
}

TEST(OwnFiles, WarnOfARegressionOfIntegers) {
  for (const char* rows : {"a,0.0\nb,1.0\n", "a,0\nb,1.0\n", "a,-1e3\nb,2\n"}) {
    const auto task = OwnFiles().train("train.csv", std::string("text,label\n") + rows).task();
    EXPECT_EQ(task->head(), nn::Head::kRegression);
    EXPECT_THAT(task->layout_warnings(),
                ElementsAre(EndsWith(
                    "train.csv: all labels are integers, but some are written as 1.0, which makes "
                    "a regression as in run_glue; for a classification write them as 1")))
        << rows;
  }
}

TEST(OwnFiles, AColumnOfNumbersIsNotASentence) {
  const std::string idx =
      ": the column \"idx\" has numbers and no text, expected sentences in the first columns or in "
      "sentence1 and sentence2; remove this column, or name the text's column sentence1 and add "
      "sentence2";
  for (const char* rows : {"0,a,1\n1,b,0\n", "0,a,1\n,b,0\n", " ,a,1\n1,b,0\n"}) {
    EXPECT_EQ(OwnFiles().train("train.csv", std::string("idx,text,label\n") + rows).failure(),
              "train.csv" + idx)
        << rows;
  }
  EXPECT_EQ(OwnFiles()
                .train("train.json", "{\"t\": \"a\", \"label\": 1}\n{\"t\": 7, \"label\": 0}\n")
                .failure(),
            "train.json:2: the column \"t\" is 7, expected a string");
  EXPECT_EQ(
      OwnFiles().train("train.json", "{\"t\": \"a\", \"label\": 1}\n{\"label\": 0}\n").failure(),
      "train.json:2: the column \"t\" is missing, expected a string");
  auto files = OwnFiles()
                   .dev("dev.csv", "idx,text,label\n0,a,1\n1,b,0\n")
                   .test("test.csv", "idx,text\n0,a\n1,b\n");
  files.options().model_labels = {"0", "1"};
  EXPECT_EQ(files.failure(Split::kDev), "dev.csv" + idx);
  EXPECT_EQ(files.failure(Split::kTest), "test.csv" + idx);
  // The index of a pandas.DataFrame.
  auto index = OwnFiles().test("test.csv", ",text\n0,a\n1,b\n");
  index.options().model_labels = {"0", "1"};
  EXPECT_EQ(index.failure(Split::kTest),
            "test.csv: the column \"\" has numbers and no text, expected sentences in the first "
            "columns or in sentence1 and sentence2; remove this column, or name the text's column "
            "sentence1 and add sentence2");
}

TEST(OwnFiles, ASentenceMayBeANumberOrEmpty) {
  auto files = OwnFiles().test("test.csv", "text\n7\n\"\"\na\n");
  files.options().model_labels = {"0", "1"};
  EXPECT_EQ(files.read(Split::kTest).size(), 3U);
  // The rows that are read need not have the text.
  EXPECT_EQ(files.task()
                ->read({Split::kTest}, tiny_tokenizer(), {.data_dir = "", .max_samples = 1})
                .size(),
            1U);
  auto empty = OwnFiles().test("test.tsv", "first\tsecond\na\t\nb\t\n");
  empty.options().model_labels = {"0", "1"};
  EXPECT_EQ(empty.read(Split::kTest).size(), 2U);
}

TEST(OwnFiles, OtherSplitsUseTheColumnsAndLabelsOfTheTrainingFile) {
  const auto files =
      OwnFiles()
          .train("train.csv", "text,label\na,no\nb,yes\n")
          .dev("dev.json", "[{\"label\": \"yes\", \"other\": \"x\", \"text\": \"b\"}]")
          .test("test.tsv", "other\ttext\nx\ta\nx\tb\n");
  const Dataset dev = files.read(Split::kDev);
  EXPECT_THAT(dev.ids, ElementsAre(2, 16, 3));
  EXPECT_THAT(dev.labels, ElementsAre(1));
  const Dataset test = files.read(Split::kTest);
  EXPECT_FALSE(test.has_labels());
  EXPECT_THAT(
      files.task()->score({Split::kTest}, std::vector<float>{0, 1, 1, 0}, test).prediction_files,
      ElementsAre(Pair("predict_results_None.txt", "index\tprediction\n0\tyes\n1\tno\n")));
  EXPECT_THAT(files.task()->score({Split::kDev}, std::vector<float>{0, 1}, dev).metrics,
              ElementsAre(Pair("accuracy", 1.0)));
  EXPECT_THAT(files.task()->baselines("", 0)[0].metrics, ElementsAre(Pair("accuracy", 0.0)));
}

TEST(OwnFiles, ALabelThatTheTrainingFileLacksIsRefused) {
  EXPECT_EQ(OwnFiles()
                .train("train.csv", "text,label\na,no\nb,yes\n")
                .dev("dev.csv", "text,label\na,no\nb,maybe\n")
                .failure(Split::kDev),
            "dev.csv:3: the label is \"maybe\", expected one of the training file: \"no\", "
            "\"yes\"");
  EXPECT_THAT(OwnFiles()
                  .train("train.csv", "text,label\na,1\nb,2\n")
                  .dev("dev.csv", "text,label\na,3\n")
                  .failure(Split::kDev),
              HasSubstr("dev.csv:2: the label is \"3\", expected one of the training file"));
}

TEST(OwnFiles, ALabelOutOfRangeIsANumberAndIsRefused) {
  for (const char* label : {"1e400", "-1e400", "1e39"}) {
    EXPECT_EQ(OwnFiles()
                  .train("train.csv", fmt::format("text,label\na,0.5\nb,{}\n", label))
                  .failure(Split::kTrain),
              fmt::format("train.csv:3: the label is \"{}\", expected a finite number", label));
  }
}

TEST(OwnFiles, ALabelWithAnInfiniteSquareIsRefused) {
  for (const char* label : {"1e38", "-2e19"}) {
    EXPECT_EQ(OwnFiles()
                  .train("train.csv", fmt::format("text,label\na,0.5\nb,{}\n", label))
                  .failure(Split::kTrain),
              fmt::format("train.csv:3: the label is \"{}\", whose square is infinite in fp32, "
                          "expected a number from -1.8e19 to 1.8e19",
                          label));
  }
  const auto large = OwnFiles().train("train.csv", "text,label\na,0.5\nb,1.8e19\n");
  EXPECT_THAT(large.read(Split::kTrain).values, ElementsAre(0.5F, 1.8e19F));
}

TEST(OwnFiles, IntegersOfMoreThan64BitsAreNoRegression) {
  const std::string large = "9223372036854775808";
  EXPECT_EQ(OwnFiles().train("train.csv", "text,label\na,1\nb," + large + "\n").failure(),
            "train.csv:3: the label is 9223372036854775808, expected integers from "
            "-9223372036854775808 to 9223372036854775807");
  const auto names = OwnFiles().train("train.csv", "text,label\na,x\nb," + large + "\n");
  EXPECT_THAT(names.task()->label_names(), ElementsAre(large, "x"));
  const auto reals = OwnFiles().train("train.csv", "text,label\na,0.5\nb," + large + "\n");
  EXPECT_THAT(reals.read(Split::kTrain).values, ElementsAre(0.5F, 9223372036854775808.0F));
}

TEST(OwnFiles, LabelsOfTwoTypesAreRefused) {
  const auto failure = [](const std::string& first, const std::string& second) {
    const std::string row = R"({{"t": "a", "label": {}}})";
    return OwnFiles()
        .train("train.json", fmt::format(fmt::runtime(row + "\n" + row), first, second))
        .failure();
  };
  EXPECT_EQ(failure("true", "1"),
            "train.json:2: the label 1 is a number, expected a boolean as in the rows before");
  EXPECT_EQ(failure("0.5", "false"),
            "train.json:2: the label False is a boolean, expected a number as in the rows before");
  EXPECT_EQ(failure("\"x\"", "true"),
            "train.json:2: the label True is a boolean, expected a string as in the rows before");
}

TEST(OwnFiles, MissingLabelsAndColumnsAreRefused) {
  EXPECT_EQ(OwnFiles().train("train.csv", "text,class\na,1\n").failure(),
            "train.csv: the column \"label\" is missing, found \"text\", \"class\"");
  EXPECT_EQ(OwnFiles().train("train.json", R"({"text": "a", "class": 1})").failure(),
            "train.json: the column \"label\" is missing, found \"text\", \"class\"; for question "
            "answering set --task_name squad");
  EXPECT_EQ(OwnFiles().train("train.csv", "label\n1\n").failure(),
            "train.csv: has no column except \"label\", expected one or two with sentences");
  EXPECT_EQ(OwnFiles().train("train.csv", "text,label\na,1\nb,\n").failure(),
            "train.csv:3: the label is missing, expected one in each row");
  EXPECT_EQ(OwnFiles().train("train.json", "{\"t\": \"a\", \"label\": [1]}").failure(),
            "train.json:1: the label is a list, expected a string or a number");
  EXPECT_EQ(OwnFiles().train("train.csv", "text,label\na,1\nb,1\n").failure(),
            "train.csv: all labels are \"1\", expected at least two different ones");
  EXPECT_EQ(
      OwnFiles()
          .train("train.json", "{\"t\": \"a\", \"label\": \"x\"}\n{\"t\": \"a\", \"label\": 1}")
          .failure(),
      "train.json:2: the label 1 is a number, expected a string as in the rows before");
  EXPECT_EQ(OwnFiles().train("train.csv", "text,label\n").failure(),
            "train.csv: has no rows, expected at least one");
  EXPECT_EQ(OwnFiles()
                .train("train.csv", "text,label\na,1\nb,0\n")
                .test("test.csv", "sentence\na\n")
                .failure(Split::kTest),
            "test.csv: the column \"text\" is missing, found \"sentence\"");
}

// As pandas reads a column of numbers. Beside other words it is one of the names.
TEST(OwnFiles, AWordForAMissingNumberIsNoLabel) {
  EXPECT_EQ(OwnFiles().train("train.csv", "text,label\na,1.5\nb,NA\nc,2.25\n").failure(),
            "train.csv:3: the label is missing: found \"NA\", expected a number as in other rows");
  EXPECT_EQ(OwnFiles().train("train.csv", "text,label\na,NaN\nb,0\nc,1\nd,null\n").failure(),
            "train.csv:2: the label is missing: found \"NaN\", expected a number as in other rows");
  EXPECT_THAT(OwnFiles().train("train.csv", "text,label\na,NA\nb,yes\n").task()->label_names(),
              ElementsAre("NA", "yes"));
  EXPECT_THAT(OwnFiles().train("train.csv", "text,label\na,NA\nb,null\n").task()->label_names(),
              ElementsAre("NA", "null"));
}

TEST(OwnFiles, WithoutATrainingFileTheLabelsAreTheModels) {
  auto files = OwnFiles().dev("dev.csv", "text,label\na,yes\nb,no\n");
  files.options().model_labels = {"no", "yes"};
  EXPECT_THAT(files.read(Split::kDev).labels, ElementsAre(1, 0));
  EXPECT_THAT(files.task()->baselines("", 0), IsEmpty());
  files.options().model_labels = {"LABEL_0"};
  EXPECT_EQ(files.failure(Split::kDev),
            "dev.csv:2: the label is \"yes\", expected a finite number");
  files.options().model_labels.clear();
  EXPECT_EQ(usage_error(files.options()),
            "--train_file is missing, expected it or a model whose config.json has the labels");
}

// As training reads them.
TEST(OwnFiles, IntegersMatchTheLabelsOfAModelByValue) {
  auto files = OwnFiles().dev("dev.csv", "text,label\na,+1\nb,01\nx, 1\na,-1\n");
  files.options().model_labels = {"-1", "1"};
  EXPECT_THAT(files.read(Split::kDev).labels, ElementsAre(1, 1, 1, 0));
  files.options().model_labels = {"01", "-1"};
  EXPECT_EQ(files.failure(Split::kDev),
            "dev.csv:2: the label is \"+1\", expected one of the model: \"01\", \"-1\"")
      << "no integer as training writes it";
}

TEST(OwnFiles, OptionsThatDoNotFitAreRefused) {
  EXPECT_EQ(usage_error({}), "found neither --task_name nor --train_file, expected one");
  EXPECT_EQ(usage_error({.name = "mrpc", .train_file = "a.csv"}),
            "--task_name=mrpc and --train_file, --validation_file or --test_file exclude each "
            "other: a task with a name has its own files");
  EXPECT_EQ(usage_error({.train_file = "a.xlsx"}),
            "--train_file=a.xlsx: expected a file that ends in .csv, .tsv, .json or .jsonl");
  const auto files = OwnFiles().train("train.csv", "text,label\na,1\nb,0\n");
  try {
    files.read(Split::kDev);
    FAIL() << "read";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    EXPECT_STREQ(failure.what(), "--validation_file is missing, expected the file with the rows");
  }
}

TEST(OwnFiles, MaxSamplesLimitsTheRows) {
  const auto files = OwnFiles().train("train.csv", "text,label\na,1\nb,0\nx,1\n");
  const Dataset data =
      files.task()->read({Split::kTrain}, tiny_tokenizer(), {.data_dir = "", .max_samples = 2});
  EXPECT_THAT(data.labels, ElementsAre(1, 0));
}

}  // namespace
}  // namespace tilewright::tasks
