// The reader against files laid out by hand as the format's page describes them, good and bad.
#include "worker/checkpoint/safetensors.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/support/paths.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class Safetensors : public ::testing::Test {
 protected:
  SafetensorsFile file(const std::string& bytes) {
    put_file(path_, bytes);
    return SafetensorsFile(path_);
  }
  void expect_refused(const std::string& bytes, const std::string& part) {
    expect_failure([&] { file(bytes); }, ExitCode::kWeights,
                   AllOf(HasSubstr(path_.string()), HasSubstr(part)));
  }
  void expect_header_refused(const std::string& header, const std::string& part) {
    expect_refused(safetensors_bytes(header, std::string(16, 'x')), part);
  }

  tilewright::testing::TemporaryDirectory folder_;
  std::filesystem::path path_ = folder_.path() / "model.safetensors";
};

TEST_F(Safetensors, GivesTensorsByNameWithTheirTypeAndShape) {
  const auto read = file(
      safetensors_bytes(R"({"__metadata__":{"format":"pt"},)"
                        R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                        R"("b":{"dtype":"I64","shape":[1],"data_offsets":[24,32]}}   )",
                        bytes_of<float>({1, 2, 3, 4, 5, -6.5f}) + bytes_of<std::int64_t>({-7})));
  EXPECT_EQ(read.tensors().size(), 2u);
  EXPECT_EQ(read.metadata().at("format"), "pt");
  EXPECT_EQ(read.find("c"), nullptr);
  ASSERT_NE(read.find("a"), nullptr);
  EXPECT_EQ(read.find("a")->dtype, DType::kF32);
  EXPECT_THAT(read.find("a")->shape, ElementsAre(2, 3));
  EXPECT_THAT(read.read_floats("a", {2, 3}), ElementsAre(1, 2, 3, 4, 5, -6.5f));
  EXPECT_THAT(read.read_integers("b"), ElementsAre(-7));
}

TEST_F(Safetensors, TakesScalarsAndEmptyTensors) {
  const auto read =
      file(safetensors_bytes(R"({"none":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},)"
                             R"("one":{"dtype":"I32","shape":[],"data_offsets":[0,4]}})",
                             bytes_of<std::int32_t>({12})));
  EXPECT_TRUE(read.read_floats("none", {0, 4}).empty());
  EXPECT_THAT(read.read_integers("one"), ElementsAre(12));
}

TEST_F(Safetensors, ConvertsHalfAndBfloat16ToFloat) {
  // Bit patterns from IEEE 754: one, -2, largest, smallest normal, smallest subnormal, -0,
  // infinity.
  const auto read =
      file(safetensors_bytes(R"({"half":{"dtype":"F16","shape":[7],"data_offsets":[0,14]},)"
                             R"("brain":{"dtype":"BF16","shape":[2],"data_offsets":[14,18]}})",
                             bytes_of<std::uint16_t>({0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001,
                                                      0x8000, 0x7c00, 0x3fc0, 0xc2f7})));
  const auto half = read.read_floats("half", {7});
  EXPECT_THAT(half, ElementsAre(1.0f, -2.0f, 65504.0f, 0x1p-14f, 0x1p-24f, 0.0f, INFINITY));
  EXPECT_TRUE(std::signbit(half[5]));
  EXPECT_THAT(read.read_floats("brain", {2}), ElementsAre(1.5f, -123.5f));
}

TEST_F(Safetensors, ReadsDataAtAnyByte) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  for (int spaces = 0; spaces < 8; ++spaces) {
    const auto read =
        file(safetensors_bytes(header + std::string(spaces, ' '), bytes_of<float>({0.25f, -3})));
    EXPECT_THAT(read.read_floats("a", {2}), ElementsAre(0.25f, -3));
  }
}

TEST_F(Safetensors, RefusesWhatIsNoSuchFile) {
  expect_failure([&] { SafetensorsFile{path_}; }, ExitCode::kWeights,
                 AllOf(HasSubstr(path_.string()), HasSubstr("No such file")));
  expect_failure([&] { SafetensorsFile{folder_.path()}; }, ExitCode::kWeights,
                 HasSubstr("not a regular file"));
  expect_refused("", "is 0 bytes long");
  expect_refused("1234567", "is 7 bytes long");
}

TEST_F(Safetensors, RefusesAHeaderLongerThanTheFileOrTheLimit) {
  expect_refused(std::string("\x09\0\0\0\0\0\0\0{}      ", 16),
                 "header of 9 bytes runs past the end of the file of 16");
  expect_refused(std::string(8, '\xff') + "{}", "18446744073709551615 bytes, expected at most");
}

TEST_F(Safetensors, RefusesAHeaderThatIsNoObjectOfTensors) {
  expect_header_refused("", "not valid JSON");
  expect_header_refused("{\"a\":", "not valid JSON");
  expect_header_refused("[]", "not a JSON object");
  expect_header_refused(R"({"a":1})", "tensor \"a\": is described by something other");
  expect_header_refused(R"({"a":[[[[]]]]})", "nests deeper");
  expect_header_refused(R"({"__metadata__":{"format":1}})", "the value of \"format\"");
}

TEST_F(Safetensors, RefusesFieldsMissingUnknownOrMalformed) {
  expect_header_refused(R"({"a":{"shape":[4],"data_offsets":[0,16]}})", "has no dtype");
  expect_header_refused(R"({"a":{"dtype":"F32","data_offsets":[0,16]}})", "has no shape");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[4]}})", "has no data_offsets");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"x":1}})",
                        "unknown field \"x\"");
  expect_header_refused(R"({"a":{"dtype":"F33","shape":[4],"data_offsets":[0,16]}})",
                        "dtype is \"F33\"");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", "holds");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})", "holds");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":["4"],"data_offsets":[0,16]}})", "holds");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0]}})",
                        "expected a begin and an end");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})",
                        "expected a begin and an end");
}

TEST_F(Safetensors, RefusesEqualNames) {
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                        R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                        "\"a\" stands twice");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[8],"shape":[4],"data_offsets":[0,16]}})",
                        "\"shape\" stands twice");
}

TEST_F(Safetensors, AllowsEqualFieldsInDifferentTensors) {
  EXPECT_EQ(file(safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                   R"("shape":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                   "12345678"))
                .tensors()
                .size(),
            2u);
}

TEST_F(Safetensors, RefusesBytesThatDoNotFitTheShape) {
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})",
                        "tensor \"a\": data_offsets hold 16 bytes, expected 12 for F32 [3]");
  expect_header_refused(
      R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}})",
      "larger than any file");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[18446744073709551616],)"
                        R"("data_offsets":[0,16]}})",
                        "expected whole numbers");
}

TEST_F(Safetensors, RefusesATruncatedFile) {
  const std::string whole = safetensors_bytes(
      R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", std::string(16, 'x'));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    expect_failure([&] { file(whole.substr(0, length)); }, ExitCode::kWeights,
                   HasSubstr(path_.string()));
  }
  expect_refused(whole.substr(0, whole.size() - 1), "run past the end of the data of 15 bytes");
}

TEST_F(Safetensors, RefusesOverlapsGapsAndBytesLeftOver) {
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                        R"("b":{"dtype":"F32","shape":[3],"data_offsets":[4,16]}})",
                        "tensor \"b\": begins at byte 4 and overlaps tensor \"a\"");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                        R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                        "tensor \"b\": begins at byte 8, expected 4");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
                        "holds 16 bytes of data, expected the 12");
}

TEST_F(Safetensors, NamesFoundAndExpectedWhenATensorDoesNotFit) {
  const auto read =
      file(safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                             R"("n":{"dtype":"I64","shape":[1],"data_offsets":[16,24]}})",
                             std::string(24, '\0')));
  const auto refuses = [&](auto call, const char* part) {
    expect_failure(call, ExitCode::kWeights, AllOf(HasSubstr(path_.string()), HasSubstr(part)));
  };
  refuses([&] { read.at("x", {4}); }, "has no tensor \"x\", expected one of shape [4]");
  refuses([&] { read.at("a", {4}); }, "tensor \"a\": found shape [2, 2], expected [4]");
  refuses([&] { read.read_floats("n", {1}); }, "tensor \"n\": found dtype I64, expected F32");
  refuses([&] { read.read_integers("a"); }, "tensor \"a\": found dtype F32, expected I32 or I64");
}

TEST_F(Safetensors, CutsAndEscapesNamesInMessages) {
  EXPECT_EQ(quote("a\nb"), "\"a\\nb\"");
  EXPECT_LT(quote(std::string(100000, 'n')).size(), 300u);
  EXPECT_NO_THROW(quote("\xff\xfe"));
}

// Whatever is done to a file, it is refused with a sentence or its tensors lie inside it.
TEST_F(Safetensors, StaysInsideTheFileWhateverItsBytes) {
  const std::string whole = safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})",
      std::string(16, 'x'));
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = whole;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < changes; ++i) {
      const char digit = static_cast<char>("0123456789{}[]\",:"[random() % 17]);
      bytes[random() % bytes.size()] = random() % 2 ? digit : static_cast<char>(random());
    }
    const auto view = std::as_bytes(std::span(bytes));
    try {
      for (const auto& [name, tensor] : parse_safetensors(view, "x", ExitCode::kWeights).tensors) {
        EXPECT_GE(tensor.bytes.data(), view.data());
        EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), view.data() + view.size());
      }
    } catch (const Failure&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace tilewright::checkpoint
