// Tests the layout of the final output, and that it never mixes files of two models.
#include "worker/checkpoint/model_directory.h"

#include <thread>

#include "tests/support/paths.h"
#include "tests/support/read_floats.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "worker/checkpoint/block_digest.h"
#include "worker/checkpoint/model_config.h"
#include "worker/checkpoint/parameters.h"
#include "worker/checkpoint/safetensors.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(source_);
    write_file(source_ / "vocab.txt", "[PAD]\n");
    write_file(source_ / "tokenizer_config.json", "{}");
    write_file(source_ / "README.md", "not the tokenizer's");
    std::filesystem::create_directory(output_);
  }
  ModelDirectoryContent content(float* values) {
    auto files = tokenizer_files(source_);
    files["r.json"] = "[]";
    return {{{"classifier.weight", {2}, values}}, "{\"a\": 1}\n", files};
  }

  tilewright::testing::TemporaryDirectory directory_;
  std::filesystem::path source_ = directory_.path() / "source";
  std::filesystem::path output_ = directory_.path() / "output";
  std::vector<float> values_ = {1, 2};
};

TEST_F(ModelDirectory, ContainsTheModelItsConfigAndItsTokenizer) {
  const FileDigest digest = write_model_directory(own(output_), content(values_.data()));
  EXPECT_THAT(content_of(output_), ElementsAre("config.json", "model.safetensors", "r.json",
                                               "tokenizer_config.json", "vocab.txt"));
  EXPECT_EQ(testing::read_text(output_ / "vocab.txt"), "[PAD]\n");
  EXPECT_EQ(testing::read_text(output_ / "config.json"), "{\"a\": 1}\n");
  EXPECT_EQ(digest, digest_of(output_ / "model.safetensors", ExitCode::kWeights));
  EXPECT_EQ(read_floats(SafetensorsFile(output_ / "model.safetensors"), "classifier.weight", {2}),
            values_);
  EXPECT_THAT(names_in(directory_.path()), ElementsAre("output", "source"));
}

TEST_F(ModelDirectory, StatesTheDigestOfItsWeights) {
  values_.assign(kDigestBlock / sizeof(float) + 3, 1.5f);
  const auto bytes = std::as_bytes(std::span(values_));
  const auto hash = [](std::span<const std::byte> part) {
    return sha256_hex({reinterpret_cast<const char*>(part.data()), part.size()});
  };
  const std::string large =
      sha256_hex(hash(bytes.first(kDigestBlock)) + "\n" + hash(bytes.subspan(kDigestBlock)));
  const std::string list = large + "  a\n" + hash(bytes.first(8)) + "  b\n";
  ModelDirectoryContent model = content(values_.data());
  model.weights = {{"b", {2}, values_.data()}, {"a", {std::ssize(values_)}, values_.data()}};
  std::string file;
  std::thread([&] {  // a pool changes the floating-point mode of its thread
    runtime::ThreadPool pool(3);
    model.pool = &pool;
    write_model_directory(own(output_), model);
    EXPECT_NO_THROW(open_intact_weights(output_, &pool));
    file = testing::read_text(output_ / "model.safetensors");
    EXPECT_THAT(file, HasSubstr(R"("tensors_sha256":")" + sha256_hex(list) + '"'));
    file.back() ^= 1;
    write_file(output_ / "model.safetensors", file);
    expect_failure([&] { open_intact_weights(output_, &pool); }, ExitCode::kWeights,
                   AllOf(HasSubstr("output/model.safetensors: is corrupt: its tensors have the "
                                   "SHA-256"),
                         HasSubstr("expected \"" + sha256_hex(list))));
  })
      .join();
  EXPECT_NO_THROW(open_weights(output_));
}

TEST_F(ModelDirectory, IsWrittenToADirectoryWithCheckpoints) {
  const OutputWriter writer = own(output_);
  std::filesystem::create_directories(output_ / "checkpoint-5");
  write_file(output_ / "model.safetensors", "of an earlier run");
  write_model_directory(writer, content(values_.data()));
  EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-5", "config.json", "model.safetensors",
                                               "r.json", "tokenizer_config.json", "vocab.txt"));
  EXPECT_EQ(read_floats(SafetensorsFile(output_ / "model.safetensors"), "classifier.weight", {2}),
            values_);
}

TEST_F(ModelDirectory, CanReplaceItsOwnSource) {
  const OutputWriter writer = acquire_output_dir(source_, {"uid-1", {}, true});
  write_model_directory(writer, content(values_.data()));
  EXPECT_EQ(testing::read_text(source_ / "vocab.txt"), "[PAD]\n");
  EXPECT_EQ(testing::read_text(source_ / "README.md"), "not the tokenizer's");
}

}  // namespace
}  // namespace tilewright::checkpoint
