// Compares the writer with the safetensors library, which wrote the golden model files.
#include "worker/checkpoint/safetensors_writer.h"

#include "tests/support/paths.h"
#include "tests/support/read_floats.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "worker/checkpoint/safetensors.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SafetensorsWriter : public ::testing::Test {
 protected:
  tilewright::testing::TemporaryDirectory directory_;
};

TEST_F(SafetensorsWriter, WritesTheSameBytesAsTheSafetensorsLibrary) {
  const auto source =
      tilewright::testing::source_dir() / "tests/golden/data/small_d32/model.safetensors";
  const SafetensorsFile original(source);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : original.tensors()) tensors.push_back({name, tensor});
  ASSERT_EQ(tensors.size(), 41u);
  std::reverse(tensors.begin(), tensors.end());  // the order of the call must not matter
  const auto copy = directory_.path() / "copy";
  const FileDigest digest = write_safetensors(copy, tensors);
  EXPECT_EQ(testing::read_text(copy), testing::read_text(source));
  EXPECT_EQ(digest.sha256, sha256_hex(testing::read_text(source)));
  EXPECT_EQ(digest, digest_of(source, ExitCode::kWeights));
}

TEST_F(SafetensorsWriter, WritesFilesThatTheReaderReads) {
  const std::vector<float> floats = {1, -2, 3.5f};
  const std::vector<std::int32_t> ints = {4, -5};
  const std::vector<std::int64_t> longs = {1LL << 40};
  const auto path = directory_.path() / "file";
  write_safetensors(path, {{"i", {DType::kI32, {2, 1}, std::as_bytes(std::span(ints))}},
                           float_tensor("f", {3}, floats.data()),
                           float_tensor("scalar", {}, floats.data() + 1),
                           {"l", {DType::kI64, {1}, std::as_bytes(std::span(longs))}}});
  EXPECT_THAT(testing::read_text(path), HasSubstr(R"("__metadata__":{"format":"pt"})"));
  const SafetensorsFile file(path);
  EXPECT_EQ(read_floats(file, "f", {3}), floats);
  EXPECT_THAT(read_floats(file, "scalar", {}), ElementsAre(-2));
  EXPECT_EQ(values_of<std::int32_t>(file.at("i", {2, 1})), ints);
  EXPECT_EQ(values_of<std::int64_t>(file.at("l", {1})), longs);
  for (const auto& [name, tensor] : file.tensors()) {  // all are aligned: wider types come first
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) % dtype_size(tensor.dtype), 0u)
        << name;
  }
}

TEST_F(SafetensorsWriter, LeavesNoFileIfItCannotWrite) {
  const float one = 1;
  expect_failure(
      [&] { write_safetensors(directory_.path() / "no/file", {float_tensor("f", {1}, &one)}); },
      ExitCode::kOutput, HasSubstr("no/file: cannot create"));
  write_file(directory_.path() / "there", "old");
  expect_failure(
      [&] { write_safetensors(directory_.path() / "there", {float_tensor("f", {1}, &one)}); },
      ExitCode::kOutput, HasSubstr("exists"));
  EXPECT_EQ(testing::read_text(directory_.path() / "there"), "old");
}

TEST_F(SafetensorsWriter, RemovesAnUnfinishedFile) {
  const auto path = directory_.path() / "half";
  {
    HashedFile file(path);
    file.write(std::as_bytes(std::span("abc")));
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace tilewright::checkpoint
