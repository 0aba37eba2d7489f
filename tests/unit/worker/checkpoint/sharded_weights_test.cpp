// Reads weights in several files, valid ones and with an index that does not fit.
#include "worker/checkpoint/sharded_weights.h"

#include <nlohmann/json.hpp>

#include "common/base/sha256.h"
#include "tests/support/paths.h"
#include "tests/support/read_floats.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "worker/checkpoint/hashed_file.h"
#include "worker/checkpoint/safetensors_header.h"
#include "worker/checkpoint/safetensors_writer.h"
#include "worker/checkpoint/torch_file.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ShardedWeightsTest : public ::testing::Test {
 protected:
  ShardedWeightsTest() {
    write_shard("one.safetensors", {"a", "b"});
    write_shard("two.safetensors", {"c"});
  }
  // Each tensor holds the code of the last character of its name.
  void write_shard(const std::string& name, const std::vector<std::string>& tensors) {
    std::vector<float> values;
    values.reserve(tensors.size());
    std::vector<NamedTensor> named;
    for (const std::string& tensor : tensors) {
      values.push_back(static_cast<float>(tensor.back()));
      named.push_back(float_tensor(tensor, {1}, &values.back()));
    }
    std::filesystem::remove(folder_ / name);
    write_safetensors(folder_ / name, std::move(named));
  }
  ShardedWeights open(const nlohmann::json& weight_map) {
    write_file(
        index_,
        nlohmann::json{{"metadata", {{"total_size", 12}}}, {"weight_map", weight_map}}.dump());
    return ShardedWeights(index_, parse_safetensors);
  }
  void expect_refused(const nlohmann::json& weight_map, const std::string& part) {
    expect_failure([&] { open(weight_map); }, ExitCode::kWeights,
                   AllOf(HasSubstr(folder_.string()), HasSubstr(part)));
  }

  tilewright::testing::TemporaryDirectory directory_;
  std::filesystem::path folder_ = directory_.path();
  std::filesystem::path index_ = folder_ / "model.safetensors.index.json";
  const nlohmann::json valid_ = {
      {"a", "one.safetensors"}, {"b", "one.safetensors"}, {"c", "two.safetensors"}};
};

TEST_F(ShardedWeightsTest, ReadsTheTensorsOfAllFiles) {
  const ShardedWeights weights = open(valid_);
  EXPECT_EQ(weights.tensors().size(), 3u);
  EXPECT_THAT(read_floats(weights, "a", {1}), ElementsAre('a'));
  EXPECT_THAT(read_floats(weights, "c", {1}), ElementsAre('c'));
}

TEST_F(ShardedWeightsTest, AddsTensorsThatTheIndexDoesNotName) {
  const ShardedWeights weights = open({{"a", "one.safetensors"}});
  EXPECT_NE(weights.find("b"), nullptr);
  EXPECT_EQ(weights.find("c"), nullptr);
}

TEST_F(ShardedWeightsTest, MessagesNameTheFileOfTheTensor) {
  const ShardedWeights weights = open(valid_);
  expect_failure([&] { weights.at("c", {2}); }, ExitCode::kWeights,
                 HasSubstr("two.safetensors: tensor \"c\": found shape [1], expected [2]"));
  expect_failure([&] { weights.at("x", {2}); }, ExitCode::kWeights,
                 HasSubstr("model.safetensors.index.json: has no tensor \"x\""));
}

TEST_F(ShardedWeightsTest, DigestsEachFileInTheOrderOfTheNames) {
  const ShardedWeights weights = open(valid_);
  std::string lines;
  for (const char* name : {"one.safetensors", "two.safetensors"}) {
    lines += digest_of(folder_ / name, ExitCode::kWeights).sha256 + "  " + name + "\n";
  }
  EXPECT_EQ(weights.digest(), sha256_hex(lines));
  // A file that replaces a mapped one has no effect; truncation of a mapped one is found.
  write_shard("two.safetensors", {"c", "d"});
  EXPECT_EQ(weights.digest(), sha256_hex(lines));
  EXPECT_NE(open(valid_).digest(), sha256_hex(lines));
  weights.check_size();
  std::filesystem::resize_file(folder_ / "one.safetensors", 10);
  expect_failure([&] { weights.check_size(); }, ExitCode::kWeights,
                 HasSubstr("one.safetensors: has been truncated: found 10 bytes"));
}

TEST_F(ShardedWeightsTest, OfOneFileHasItsDigest) {
  EXPECT_EQ(open({{"c", "two.safetensors"}}).digest(),
            digest_of(folder_ / "two.safetensors", ExitCode::kWeights).sha256);
}

TEST_F(ShardedWeightsTest, RefusesFilesOutsideTheDirectory) {
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", ".", "..",
                           "", "./one.safetensors", "one.safetensors/"}) {
    expect_refused({{"a", name}}, fmt::format("model.safetensors.index.json: weight_map has "
                                              "\"{}\" for tensor \"a\", expected the name of a "
                                              "file in the same directory",
                                              name));
  }
  expect_refused({{"a", std::string("one\0/", 5)}}, "expected the name of a file");
  expect_refused({{"a", 3}}, "weight_map has no string for tensor \"a\"");
  expect_refused({{"a", nullptr}}, "weight_map has no string for tensor \"a\"");
}

TEST_F(ShardedWeightsTest, RefusesAnIndexThatDoesNotFitItsFiles) {
  expect_refused({{"a", "three.safetensors"}}, "three.safetensors: cannot open: No such file");
  expect_refused({{"a", "two.safetensors"}},
                 "tensor \"a\" is not in \"two.safetensors\", where the index expects it");
  expect_refused({{"a", "one.safetensors"}, {"c", "one.safetensors"}, {"x", "two.safetensors"}},
                 "tensor \"c\" is not in \"one.safetensors\"");
  write_shard("two.safetensors", {"c", "a"});
  expect_refused(valid_,
                 "tensor \"a\" is in one.safetensors and in two.safetensors, expected it "
                 "in one file");
  write_file(folder_ / "two.safetensors", "1234");
  expect_refused(valid_, "two.safetensors: is 4 bytes long");
}

TEST_F(ShardedWeightsTest, RefusesAnInvalidIndex) {
  const auto refuses = [&](const std::string& text, const std::string& part) {
    write_file(index_, text);
    expect_failure([&] { ShardedWeights(index_, parse_safetensors); }, ExitCode::kWeights,
                   AllOf(HasSubstr(index_.string()), HasSubstr(part)));
  };
  refuses("", "is not valid JSON");
  refuses("{}", "weight_map is missing; expected an object");
  refuses(R"({"weight_map": []})", "weight_map is [], expected an object");
  refuses(R"({"weight_map": {}})", "weight_map names 0 files, expected 1 to 256");
  nlohmann::json many;
  for (int i = 0; i < 257; ++i) many[std::to_string(i)] = fmt::format("{}.safetensors", i);
  expect_refused(many, "weight_map names 257 files, expected 1 to 256");
}

TEST_F(ShardedWeightsTest, RefusesFilesOfAnotherFormat) {
  write_file(index_, nlohmann::json{{"weight_map", valid_}}.dump());
  expect_failure([&] { ShardedWeights(index_, parse_torch_file); }, ExitCode::kWeights,
                 HasSubstr("one.safetensors: begins with"));
}

}  // namespace
}  // namespace tilewright::checkpoint
