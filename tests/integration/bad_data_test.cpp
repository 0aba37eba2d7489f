// Bad data files and weights: each ends the training with one sentence and its exit code, and
// leaves no output.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>

#include "common/base/exit_codes.h"
#include "tests/integration/hub_fixture.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

// The files of one case, in the working directory of the training.
class Files {
 public:
  explicit Files(fs::path folder) : folder_(std::move(folder)) {}
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  // Makes `train` and `dev` the training and evaluation files of squad.
  void squad(const std::string& train, const std::string& dev = kGood) const {
    write("squad/train-v1.1.json", train);
    write("squad/dev-v1.1.json", dev);
  }
  static std::string paragraph(const std::string& context, const std::string& questions) {
    return R"({"data": [{"paragraphs": [{"context": ")" + context + R"(", "qas": [)" + questions +
           "]}]}]}";
  }
  static std::string question(const std::string& id, const std::string& answer, int start) {
    return R"({"id": ")" + id + R"(", "question": "Who?", "answers": [{"text": ")" + answer +
           R"(", "answer_start": )" + std::to_string(start) + "}]}";
  }
  static const std::string kGood;
  const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
};
const std::string Files::kGood = Files::paragraph("Ada wrote it.", Files::question("q", "Ada", 0));

struct BadDataCase {
  std::string name;
  ExitCode code;
  std::vector<std::string> said;  // substrings of the message, in this order
  std::function<void(const Files&)> make;
  std::string flags = "--task_name squad --data_dir squad";
};

void PrintTo(const BadDataCase& row, std::ostream* out) { *out << row.name; }

std::string guide_file(const std::string& name) {
  return testing::read_text(testing::hub_files() / name);
}

std::vector<BadDataCase> bad_data_cases() {
  const std::string own = "--train_file train.csv --validation_file dev.csv";
  return {
      {"AnswerNotInItsContext",
       ExitCode::kData,
       {"squad/train-v1.1.json: question \"q\": the answer \"Bob\" does not occur in its context"},
       [](const Files& f) {
         f.squad(Files::paragraph("Ada wrote it.", Files::question("q", "Bob", 0)));
       }},
      {"OffsetsInBytes",
       ExitCode::kData,
       {"question \"q\": answer_start 6 of \"Ada\" is an offset in bytes, expected 4"},
       [](const Files& f) {
         f.squad(Files::paragraph("\xc3\x89t\xc3\xa9 Ada.", Files::question("q", "Ada", 6)));
       }},
      {"QuestionIdTwice",
       ExitCode::kData,
       {"question \"q\": the id occurs twice, expected distinct ids"},
       [](const Files& f) {
         const std::string one = Files::question("q", "Ada", 0);
         f.squad(Files::paragraph("Ada wrote it.", one + "," + one));
       }},
      {"EmptyContext",
       ExitCode::kData,
       {"the context is empty, expected text"},
       [](const Files& f) { f.squad(Files::paragraph("", Files::question("q", "Ada", 0))); }},
      {"ContextOfWhiteSpace",
       ExitCode::kData,
       {"the context has only white space, expected text"},
       [](const Files& f) {
         f.squad(Files::paragraph(" \\t\\u00a0", Files::question("q", "Ada", 0)));
       }},
      {"UnpairedSurrogate",
       ExitCode::kData,
       {"squad/train-v1.1.json", "unpaired UTF-16 surrogate"},
       [](const Files& f) {
         f.squad(Files::paragraph("Ada \\ud83d", Files::question("q", "Ada", 0)));
       }},
      {"ALineOfTenMegabytes",
       ExitCode::kData,
       {"squad/train-v1.1.json", "expected at most 1048576"},
       [](const Files& f) {
         f.squad(Files::paragraph(std::string(10 << 20, 'a'), Files::question("q", "a", 0)));
       }},
      {"TruncatedJson",
       ExitCode::kData,
       {"squad/train-v1.1.json", "the file is cut off"},
       [](const Files& f) { f.squad(Files::kGood.substr(0, Files::kGood.size() - 20)); }},
      {"TruncatedEvaluationFile",
       ExitCode::kData,
       {"squad/dev-v1.1.json", "the file is cut off"},
       [](const Files& f) { f.squad(Files::kGood, Files::kGood.substr(0, 60)); }},
      {"CsvWithBrokenQuotes",
       ExitCode::kData,
       {"train.csv:3: the quote that opens in line 3 is not closed before the end of the file"},
       [](const Files& f) {
         f.write("train.csv", "text,label\na,no\n\"b,yes\n");
         f.write("dev.csv", "text,label\na,no\n");
       },
       own},
      {"LabelThatTheTrainingFileLacks",
       ExitCode::kData,
       {"dev.csv:3: ", "\"maybe\"", "expected"},
       [](const Files& f) {
         f.write("train.csv", "text,label\na,no\nb,yes\n");
         f.write("dev.csv", "text,label\na,no\nb,maybe\n");
       },
       own},
      {"NumbersWithAMetricOfClasses",
       ExitCode::kUsage,
       {"--metric_for_best_model: found accuracy, expected one of loss, mse"},
       [](const Files& f) {
         f.write("train.csv", "text,label\na,0.5\nb,1.5\n");
         f.write("dev.csv", "text,label\na,0.5\n");
       },
       own + " --eval_strategy epoch --metric_for_best_model accuracy"},
      {"TwoSourcesOfTheData",
       ExitCode::kUsage,
       {"--data_dir: found squad and --train_file, expected only one of them"},
       [](const Files& f) {
         f.write("train.csv", "text,label\na,no\nb,yes\n");
         f.write("dev.csv", "text,label\na,no\n");
       },
       own + " --data_dir squad"},
      {"NoFileToEvaluateOn",
       ExitCode::kUsage,
       {"--validation_file is missing, expected the file with the examples to evaluate on"},
       [](const Files& f) { f.write("train.csv", "text,label\na,no\nb,yes\n"); },
       "--train_file train.csv"},
      {"ParquetThatIsCut",
       ExitCode::kData,
       {"squad/train-00000-of-00001.parquet", "is the file cut off?"},
       [](const Files& f) {
         const std::string folder = "datasets/rajpurkar/squad/plain_text/";
         const std::string train = guide_file(folder + "train-00000-of-00001.parquet");
         f.write("squad/train-00000-of-00001.parquet", train.substr(0, train.size() / 2));
         f.write("squad/validation-00000-of-00001.parquet",
                 guide_file(folder + "validation-00000-of-00001.parquet"));
       },
       "--dataset_name ./squad"},
      {"ParquetThatIsAGitLfsPointer",
       ExitCode::kData,
       {"squad/train-00000-of-00001.parquet: is a Git LFS pointer, expected the file itself: run "
        "git lfs pull"},
       [](const Files& f) {
         for (const char* split : {"train", "validation"}) {
           f.write(fmt::format("squad/{}-00000-of-00001.parquet", split),
                   "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n");
         }
       },
       "--dataset_name ./squad"},
      {"ParquetOfAnotherSchema",
       ExitCode::kData,
       {"squad/train-00000-of-00001.parquet", "has no column", "found"},
       [](const Files& f) {
         for (const char* split : {"train", "validation"}) {
           const std::string file = fmt::format("{}-00000-of-00001.parquet", split);
           f.write("squad/" + file, guide_file("datasets/nyu-mll/glue/mrpc/" + file));
         }
       },
       "--dataset_name ./squad"},
  };
}

class BadData : public testing::HubTraining, public ::testing::WithParamInterface<BadDataCase> {
 protected:
  std::map<std::string, std::string> content() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder())) {
      const fs::path name = entry.path().lexically_relative(folder());
      // The cache keeps empty directories.
      if (entry.is_directory() && *name.begin() == "cache") continue;
      files[name.string()] = entry.is_regular_file() ? testing::read_text(entry.path()) : "";
    }
    return files;
  }
  // Runs the training and checks its message and what it leaves.
  void expect_refused(const BadDataCase& row, const std::string& model) {
    const auto before = content();
    EXPECT_EQ(run("--model_name_or_path " + model + " --do_train --do_eval --output_dir out " +
                  row.flags),
              static_cast<int>(row.code))
        << output_;
    // A line of the log may come before the error, which is the last line.
    const std::string last = output_.substr(output_.rfind('\n', output_.size() - 2) + 1);
    EXPECT_THAT(last, ::testing::StartsWith("tilewright-worker: ")) << output_;
    std::size_t at = 0;
    for (const std::string& part : row.said) {
      at = last.find(part, at);
      ASSERT_NE(at, std::string::npos) << "\"" << part << "\" is missing in\n" << output_;
    }
    EXPECT_EQ(content(), before) << "files remain or have changed";
  }
};

INSTANTIATE_TEST_SUITE_P(Worker, BadData, ::testing::ValuesIn(bad_data_cases()),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(BadData, IsRefusedWithOneSentenceAndNoLeftovers) {
  GetParam().make(Files(folder()));
  expect_refused(GetParam(),
                 (testing::hub_files() / "models/distilbert/distilbert-base-uncased").string());
}

class BadWeights : public BadData {};
INSTANTIATE_TEST_SUITE_P(Worker, BadWeights,
                         ::testing::Values(BadDataCase{"NaN", ExitCode::kWeights, {}, {}},
                                           BadDataCase{"Infinity", ExitCode::kWeights, {}, {}}),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(BadWeights, AreRefusedByTheNameOfTheTensor) {
  BadDataCase row = GetParam();
  const Files files(folder());
  files.squad(Files::kGood);
  const fs::path source = testing::hub_files() / "models/distilbert/distilbert-base-uncased";
  fs::copy(source, path("model"));
  std::string weights = testing::read_text(source / "model.safetensors");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, weights.data(), sizeof(header_bytes));
  const auto header = nlohmann::json::parse(weights.substr(8, header_bytes));
  const std::string tensor = "distilbert.transformer.layer.1.ffn.lin1.weight";
  const float bad = row.name == "NaN" ? std::numeric_limits<float>::quiet_NaN()
                                      : std::numeric_limits<float>::infinity();
  const auto begin = header.at(tensor).at("data_offsets").at(0).get<std::size_t>();
  std::memcpy(weights.data() + 8 + header_bytes + begin + 5 * sizeof(float), &bad, sizeof(bad));
  files.write("model/model.safetensors", weights);
  row.said = {"model/model.safetensors", tensor,
              row.name == "NaN" ? "element 5 is NaN" : "element 5 is infinite"};
  expect_refused(row, "model");
}

}  // namespace
}  // namespace tilewright
