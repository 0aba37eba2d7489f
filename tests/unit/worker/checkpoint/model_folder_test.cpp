// The final output: the layout, and never files of two trainings beside each other.
#include "worker/checkpoint/model_folder.h"

#include "tests/support/paths.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "worker/checkpoint/model_config.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(source_);
    put_file(source_ / "vocab.txt", "[PAD]\n");
    put_file(source_ / "tokenizer_config.json", "{}");
    put_file(source_ / "README.md", "not the tokenizer's");
  }
  ModelFolderContent content(float* values) {
    return {{{"classifier.weight", {2}, values}}, "{\"a\": 1}\n", source_, {{"r.json", "[]"}}};
  }

  tilewright::testing::TemporaryDirectory folder_;
  std::filesystem::path source_ = folder_.path() / "source";
  std::filesystem::path output_ = folder_.path() / "output";
  std::vector<float> values_ = {1, 2};
};

TEST_F(ModelFolder, HoldsTheModelItsConfigAndItsTokenizer) {
  const FileDigest digest = write_model_folder(output_, content(values_.data()));
  EXPECT_THAT(names_in(output_), ElementsAre("config.json", "model.safetensors", "r.json",
                                             "tokenizer_config.json", "vocab.txt"));
  EXPECT_EQ(testing::read_text(output_ / "vocab.txt"), "[PAD]\n");
  EXPECT_EQ(testing::read_text(output_ / "config.json"), "{\"a\": 1}\n");
  EXPECT_EQ(digest, digest_of(output_ / "model.safetensors", ExitCode::kWeights));
  EXPECT_EQ(SafetensorsFile(output_ / "model.safetensors").read_floats("classifier.weight", {2}),
            values_);
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("output", "source"));
}

TEST_F(ModelFolder, StandsBesideTheCheckpointsOfItsTraining) {
  std::filesystem::create_directories(output_ / "checkpoint-5");
  put_file(output_ / "model.safetensors", "of an earlier run");
  write_model_folder(output_, content(values_.data()));
  EXPECT_THAT(names_in(output_), ElementsAre("checkpoint-5", "config.json", "model.safetensors",
                                             "r.json", "tokenizer_config.json", "vocab.txt"));
  EXPECT_EQ(SafetensorsFile(output_ / "model.safetensors").read_floats("classifier.weight", {2}),
            values_);
}

TEST_F(ModelFolder, CanBeWrittenOverItsOwnSource) {
  write_model_folder(source_, content(values_.data()));
  EXPECT_EQ(testing::read_text(source_ / "vocab.txt"), "[PAD]\n");
  EXPECT_EQ(testing::read_text(source_ / "README.md"), "not the tokenizer's");
}

TEST_F(ModelFolder, IsNotBegunWhereItCannotBe) {
  expect_failure([&] { write_model_folder(folder_.path() / "a/b", content(values_.data())); },
                 ExitCode::kOutput, HasSubstr("cannot create the folder"));
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("source"));
}

}  // namespace
}  // namespace tilewright::checkpoint
