// Finds parameters under the names that different weight files use.
#include "worker/checkpoint/parameters.h"

#include <cmath>
#include <thread>

#include "tests/support/paths.h"
#include "tests/support/read_floats.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "tests/unit/worker/checkpoint/torch_testing.h"
#include "worker/checkpoint/safetensors_writer.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void read_parameter(const WeightSource& source, const TensorView& into) {
  read_parameters(source, {&into, 1});
}

class Parameters : public ::testing::Test {
 protected:
  const WeightSource& file_with(const std::string& name) {
    std::filesystem::remove(path_);
    write_safetensors(path_, {float_tensor(name, {2}, values_.data())});
    file_ = open_weights(directory_.path());
    return *file_;
  }

  tilewright::testing::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "model.safetensors";
  std::vector<float> values_ = {1.25f, -2};
  std::unique_ptr<WeightSource> file_;
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
           {hf + "weight", "module." + hf + "weight"},
           {hf + "bias", "module." + bare + "beta"},
           {"distilbert.embeddings.LayerNorm.bias", "embeddings.LayerNorm.bias"},
           {"distilbert.embeddings.LayerNorm.bias", "module.distilbert.embeddings.LayerNorm.bias"},
           {"qa_outputs.bias", "module.qa_outputs.bias"},
           {"classifier.weight", "classifier.weight"}}) {
    const WeightSource& file = file_with(held);
    EXPECT_EQ(find_parameter(file, wanted), held);
    std::vector<float> read(2);
    read_parameter(file, {wanted, {2}, read.data()});
    EXPECT_EQ(read, values_) << held;
  }
}

// More elements than a thread reads at a time.
TEST_F(Parameters, AreReadAndCheckedByAnyNumberOfThreads) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 20) + 7;
  std::vector<float> first(kCount), second(5, 2.5f);
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = static_cast<float>(i);
  const auto open = [&] {
    std::filesystem::remove(path_);
    write_safetensors(
        path_, {float_tensor("a", {kCount}, first.data()), float_tensor("b", {5}, second.data())});
    return open_weights(directory_.path());
  };
  std::thread([&] {  // a pool changes the floating-point mode of its thread
    runtime::ThreadPool pool(3);
    std::vector<float> a(first.size()), b(second.size());
    const std::vector<TensorView> into = {{"a", {kCount}, a.data()}, {"b", {5}, b.data()}};
    read_parameters(*open(), into, &pool);
    EXPECT_EQ(a, first);
    EXPECT_EQ(b, second);
    const std::vector<ExpectedParameter> expected = {{"a", {kCount}}, {"b", {5}}};
    EXPECT_NO_THROW(check_parameters(*open(), expected, &pool));
    first.back() = NAN;
    second[0] = NAN;
    for (int i = 0; i < 5; ++i) {
      const auto bad = open();
      expect_failure([&] { check_parameters(*bad, expected, &pool); }, ExitCode::kWeights,
                     HasSubstr("tensor \"a\""));
    }
  })
      .join();
}

TEST_F(Parameters, AreNotConfusedWithSimilarNames) {
  EXPECT_EQ(find_parameter(file_with("weight"), "classifier.weight"), std::nullopt);
  EXPECT_EQ(find_parameter(file_with("bert.x.LayerNorm.beta"), "bert.x.LayerNorm.weight"),
            std::nullopt);
  EXPECT_EQ(find_parameter(file_with("bert.x.dense.gamma"), "bert.x.dense.weight"), std::nullopt);
}

TEST_F(Parameters, AreRefusedIfMissingOrOfWrongShape) {
  const WeightSource& file = file_with("pooler.dense.bias");
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

TEST_F(Parameters, AreFoundInTheFirstFileThatExists) {
  const auto first = [&] {
    std::string message;
    try {
      open_weights(directory_.path());
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kWeights);
      message = failure.what();
    }
    return message;
  };
  EXPECT_THAT(first(), AllOf(HasSubstr(directory_.path().string() + ": found none of the weight"),
                             HasSubstr("expected model.safetensors, model.safetensors.index.json, "
                                       "pytorch_model.bin or pytorch_model.bin.index.json")));
  write_file(directory_.path() / "tf_model.h5", "");
  EXPECT_THAT(first(), HasSubstr("found tf_model.h5"));
  for (const char* name : {"pytorch_model.bin.index.json", "pytorch_model.bin",
                           "model.safetensors.index.json", "model.safetensors"}) {
    write_file(directory_.path() / name, "");
    EXPECT_THAT(first(), HasSubstr((directory_.path() / name).string() + ": "));
  }
  // As in a cache of Hugging Face whose blob was deleted.
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("../blobs/1", path_);
  EXPECT_THAT(first(), HasSubstr("model.safetensors: cannot open: No such file"));
}

// One model, saved by transformers and torch in five ways.
TEST_F(Parameters, AreTheSameInEveryFormat) {
  const auto models = golden_weights() / "models";
  const auto expected = open_weights(models / "safetensors");
  ASSERT_EQ(expected->tensors().size(), 25u);
  for (const char* directory : {"safetensors_sharded", "torch", "torch_sharded", "torch_legacy"}) {
    const auto source = open_weights(models / directory);
    EXPECT_EQ(source->tensors().size(), expected->tensors().size()) << directory;
    for (const auto& [name, tensor] : expected->tensors()) {
      EXPECT_EQ(read_floats(*source, name, tensor.shape),
                read_floats(*expected, name, tensor.shape))
          << directory << " " << name;
    }
  }
}

// As the published bert-base-uncased: LayerNorm.gamma and .beta, another head, a buffer.
TEST_F(Parameters, OfAPretrainedModelAreReadAndTheDifferencesListed) {
  const auto models = golden_weights() / "models";
  const auto expected = open_weights(models / "safetensors");
  const auto pretrained = open_weights(models / "pretrained");
  std::vector<ExpectedParameter> parameters;
  for (const auto& [name, tensor] : expected->tensors()) {
    parameters.push_back({name, tensor.shape, name.starts_with("classifier.")});
  }
  const ParameterDifferences differences = check_parameters(*pretrained, parameters);
  EXPECT_THAT(differences.missing, ElementsAre("classifier.bias", "classifier.weight"));
  EXPECT_THAT(
      differences.unexpected,
      ElementsAre("cls.predictions.bias", "cls.predictions.decoder.bias",
                  "cls.predictions.decoder.weight", "cls.predictions.transform.LayerNorm.beta",
                  "cls.predictions.transform.LayerNorm.gamma",
                  "cls.predictions.transform.dense.bias", "cls.predictions.transform.dense.weight",
                  "cls.seq_relationship.bias", "cls.seq_relationship.weight"));
  for (const ExpectedParameter& parameter : parameters) {
    if (parameter.optional) continue;
    const std::vector<float> values = read_floats(*expected, parameter.name, parameter.shape);
    std::vector<float> read(values.size());
    read_parameter(*pretrained, {parameter.name, parameter.shape, read.data()});
    EXPECT_EQ(read, values) << parameter.name;
  }
}

TEST_F(Parameters, AreCheckedBeforeTheyAreRead) {
  const WeightSource& file = file_with("pooler.dense.bias");
  const auto check = [&](const std::vector<ExpectedParameter>& expected) {
    return check_parameters(file, expected);
  };
  EXPECT_TRUE(check({{"bert.pooler.dense.bias", {2}, false}}).unexpected.empty());
  EXPECT_THAT(check({}).unexpected, ElementsAre("pooler.dense.bias"));
  expect_failure(
      [&] {
        check({{"bert.pooler.dense.weight", {2}, false}});
      },
      ExitCode::kWeights, HasSubstr("has no tensor \"bert.pooler.dense.weight\""));
  expect_failure(
      [&] {
        check({{"bert.pooler.dense.bias", {3}, true}});
      },
      ExitCode::kWeights,
      HasSubstr(path_.string() + ": tensor \"pooler.dense.bias\": found shape [2], expected [3]; "
                                 "--ignore_mismatched_sizes initialises it at random"));
  // The flag would not help.
  expect_failure(
      [&] {
        check({{"bert.pooler.dense.bias", {3}, true}, {"bert.pooler.dense.bias", {3}, false}});
      },
      ExitCode::kWeights, Not(HasSubstr("--ignore_mismatched_sizes")));
  for (const auto& [value, name] : std::vector<std::pair<float, std::string>>{
           {NAN, "NaN"}, {INFINITY, "infinite"}, {-INFINITY, "-infinite"}}) {
    values_[1] = value;
    const WeightSource& bad = file_with("pooler.dense.bias");
    expect_failure(
        [&] {
          check_parameters(bad, {{{"bert.pooler.dense.bias", {2}, false}}});
        },
        ExitCode::kWeights,
        AllOf(HasSubstr(path_.string()), HasSubstr("tensor \"pooler.dense.bias\": element 1 is " +
                                                   name + ", expected a finite number")));
    EXPECT_THAT(check_parameters(bad, {}).unexpected, ElementsAre("pooler.dense.bias"))
        << "unused tensors may have any value";
  }
}

TEST_F(Parameters, OfAHeadOfAnotherShapeCountAsMissingIfAsked) {
  write_safetensors(path_, {float_tensor("bert.embeddings.LayerNorm.bias", {2}, values_.data()),
                            float_tensor("classifier.bias", {2}, values_.data()),
                            float_tensor("classifier.weight", {1, 2}, values_.data())});
  const auto file = open_weights(directory_.path());
  const auto check = [&](std::int64_t encoder_size, const Shape& bias) {
    return check_parameters(*file,
                            {{{"classifier.weight", {1, 2}, true, true},
                              {"classifier.bias", bias, true, true},
                              {"bert.embeddings.LayerNorm.bias", {encoder_size}, false, true}}});
  };
  EXPECT_THAT(check(2, {2}).missing, ::testing::IsEmpty()) << "no effect where the shapes fit";
  for (const Shape& bias : {Shape{3}, Shape{2, 1}}) {
    const ParameterDifferences differences = check(2, bias);
    EXPECT_THAT(differences.missing, ElementsAre("classifier.bias"));
    EXPECT_THAT(differences.unexpected, ::testing::IsEmpty());
  }
  expect_failure([&] { check(3, {3}); }, ExitCode::kWeights,
                 ::testing::EndsWith("tensor \"bert.embeddings.LayerNorm.bias\": found shape [2], "
                                     "expected [3]"));
}

TEST(AbbreviatedList, NamesTheFirstFewAndTheNumberOfTheOthers) {
  EXPECT_EQ(abbreviated_list({}), "");
  EXPECT_EQ(abbreviated_list({"a"}), "a");
  EXPECT_EQ(abbreviated_list({"a", "b", "c", "d"}), "a, b, c, d");
  EXPECT_EQ(abbreviated_list({"a", "b", "c", "d", "e", "f"}), "a, b, c, d and 2 more");
  EXPECT_EQ(abbreviated_list({"a\nb"}), "a\\nb");
}

}  // namespace
}  // namespace tilewright::checkpoint
