// Finds parameters under the names that different weight files use.
#include "worker/checkpoint/parameters.h"

#include "tests/support/paths.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "worker/checkpoint/safetensors_writer.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Parameters : public ::testing::Test {
 protected:
  const SafetensorsFile& file_with(const std::string& name) {
    std::filesystem::remove(path_);
    write_safetensors(path_, {float_tensor(name, {2}, values_.data())});
    file_ = open_weights(directory_.path());
    return *file_;
  }

  tilewright::testing::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "model.safetensors";
  std::vector<float> values_ = {1.25f, -2};
  std::unique_ptr<SafetensorsFile> file_;
};

TEST_F(Parameters, AreFoundWithAndWithoutThePrefixAndByOlderNames) {
  const std::string hf = "bert.encoder.layer.0.output.LayerNorm.";
  const std::string bare = "encoder.layer.0.output.LayerNorm.";
  for (const auto& [wanted, held] : std::vector<std::pair<std::string, std::string>>{
           {hf + "weight", hf + "weight"},
           {hf + "weight", bare + "weight"},
           {hf + "weight", hf + "gamma"},
           {hf + "weight", bare + "gamma"},
           {hf + "bias", bare + "beta"},
           {"classifier.weight", "classifier.weight"}}) {
    const SafetensorsFile& file = file_with(held);
    EXPECT_EQ(find_parameter(file, wanted), held);
    std::vector<float> read(2);
    read_parameter(file, {wanted, {2}, read.data()});
    EXPECT_EQ(read, values_) << held;
  }
}

TEST_F(Parameters, AreNotConfusedWithSimilarNames) {
  EXPECT_EQ(find_parameter(file_with("weight"), "classifier.weight"), std::nullopt);
  EXPECT_EQ(find_parameter(file_with("bert.x.LayerNorm.beta"), "bert.x.LayerNorm.weight"),
            std::nullopt);
  EXPECT_EQ(find_parameter(file_with("bert.x.dense.gamma"), "bert.x.dense.weight"), std::nullopt);
}

TEST_F(Parameters, AreRefusedIfMissingOrOfWrongShape) {
  const SafetensorsFile& file = file_with("pooler.dense.bias");
  std::vector<float> read(3);
  expect_failure(
      [&] {
        read_parameter(file, {"bert.pooler.dense.weight", {3}, read.data()});
      },
      ExitCode::kWeights,
      AllOf(HasSubstr("has no tensor \"bert.pooler.dense.weight\" (nor "
                      "\"pooler.dense.weight\"), expected one of shape [3]"),
            HasSubstr(path_.string())));
  expect_failure(
      [&] {
        read_parameter(file, {"bert.pooler.dense.bias", {3}, read.data()});
      },
      ExitCode::kWeights, HasSubstr("tensor \"pooler.dense.bias\": found shape [2], expected [3]"));
}

TEST_F(Parameters, ErrorNamesFilesInAnotherFormat) {
  expect_failure([&] { open_weights(directory_.path()); }, ExitCode::kWeights,
                 HasSubstr("model.safetensors: cannot open"));
  write_file(directory_.path() / "pytorch_model.bin", "");
  expect_failure([&] { open_weights(directory_.path()); }, ExitCode::kWeights,
                 HasSubstr("is missing; found pytorch_model.bin"));
}

}  // namespace
}  // namespace tilewright::checkpoint
