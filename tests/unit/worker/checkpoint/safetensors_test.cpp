// Reads valid and invalid files that are built byte by byte.
#include "worker/checkpoint/safetensors.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "common/base/sha256.h"
#include "tests/support/paths.h"
#include "tests/support/read_floats.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "worker/checkpoint/block_digest.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Element>
std::string bytes_of(const std::vector<Element>& values) {
  std::string bytes(values.size() * sizeof(Element), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class Safetensors : public ::testing::Test {
 protected:
  SafetensorsFile file(const std::string& bytes) {
    write_file(path_, bytes);
    return SafetensorsFile(path_);
  }
  void expect_refused(const std::string& bytes, const std::string& part) {
    expect_failure([&] { file(bytes); }, ExitCode::kWeights,
                   AllOf(HasSubstr(path_.string()), HasSubstr(part)));
  }
  void expect_header_refused(const std::string& header, const std::string& part) {
    expect_refused(safetensors_bytes(header, std::string(16, 'x')), part);
  }

  tilewright::testing::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "model.safetensors";
};

TEST_F(Safetensors, ReadsTensorsByNameWithTheirTypeAndShape) {
  const auto read = file(
      safetensors_bytes(R"({"__metadata__":{"format":"pt"},)"
                        R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                        R"("b":{"dtype":"I64","shape":[1],"data_offsets":[24,32]}}   )",
                        bytes_of<float>({1, 2, 3, 4, 5, -6.5f}) + bytes_of<std::int64_t>({-7})));
  EXPECT_EQ(read.tensors().size(), 2u);

  EXPECT_EQ(read.find("c"), nullptr);
  ASSERT_NE(read.find("a"), nullptr);
  EXPECT_EQ(read.find("a")->dtype, DType::kF32);
  EXPECT_THAT(read.find("a")->shape, ElementsAre(2, 3));
  EXPECT_THAT(read_floats(read, "a", {2, 3}), ElementsAre(1, 2, 3, 4, 5, -6.5f));
  EXPECT_THAT(values_of<std::int64_t>(read.at("b", {1})), ElementsAre(-7));
}

TEST_F(Safetensors, AcceptsScalarsAndEmptyTensors) {
  const auto read =
      file(safetensors_bytes(R"({"none":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},)"
                             R"("one":{"dtype":"I32","shape":[],"data_offsets":[0,4]}})",
                             bytes_of<std::int32_t>({12})));
  EXPECT_TRUE(read_floats(read, "none", {0, 4}).empty());
  EXPECT_THAT(values_of<std::int32_t>(read.at("one", {})), ElementsAre(12));
}

TEST_F(Safetensors, ConvertsHalfAndBfloat16ToFloat) {
  // Bit patterns from IEEE 754: one, -2, largest, smallest normal, smallest subnormal, -0,
  // infinity.
  const auto read =
      file(safetensors_bytes(R"({"half":{"dtype":"F16","shape":[7],"data_offsets":[0,14]},)"
                             R"("brain":{"dtype":"BF16","shape":[2],"data_offsets":[14,18]}})",
                             bytes_of<std::uint16_t>({0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001,
                                                      0x8000, 0x7c00, 0x3fc0, 0xc2f7})));
  const auto half = read_floats(read, "half", {7});
  EXPECT_THAT(half, ElementsAre(1.0f, -2.0f, 65504.0f, 0x1p-14f, 0x1p-24f, 0.0f, INFINITY));
  EXPECT_TRUE(std::signbit(half[5]));
  EXPECT_THAT(read_floats(read, "brain", {2}), ElementsAre(1.5f, -123.5f));
}

TEST_F(Safetensors, ConvertsDoubleToFloat) {
  const auto read = file(safetensors_bytes(
      R"({"a":{"dtype":"F64","shape":[3],"data_offsets":[0,24]}})",
      bytes_of<double>({0.5, 1.0 + 0x1p-24 + 0x1p-30, 1e300})));  // rounds up; overflows
  EXPECT_THAT(read_floats(read, "a", {3}), ElementsAre(0.5f, 1.0f + 0x1p-23f, INFINITY));
  expect_failure([&] { read.check_finite("a", {3}); }, ExitCode::kWeights,
                 HasSubstr("tensor \"a\": element 2 is infinite, expected a finite number in the "
                           "range of fp32"));
}

// More elements than are checked at once.
TEST_F(Safetensors, FindsANumberThatIsNotFiniteAnywhere) {
  constexpr std::size_t kCount = 40000;
  const std::string header =
      fmt::format(R"({{"a":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})", kCount,
                  kCount * sizeof(float));
  for (const std::size_t at : {std::size_t{0}, std::size_t{16384}, kCount - 1}) {
    std::vector<float> values(kCount, 1);
    const auto finite = file(safetensors_bytes(header, bytes_of(values)));
    EXPECT_NO_THROW(finite.check_finite("a", {kCount}));
    values[at] = NAN;
    const auto read = file(safetensors_bytes(header, bytes_of(values)));
    expect_failure([&] { read.check_finite("a", {kCount}); }, ExitCode::kWeights,
                   HasSubstr(fmt::format("element {} is NaN", at)));
  }
}

TEST_F(Safetensors, HasTheDigestOfItsContent) {
  const std::string bytes = safetensors_bytes("{}", "");
  EXPECT_EQ(file(bytes).digest(), sha256_hex(bytes));
}

TEST_F(Safetensors, HasOneDigestForAnyNumberOfThreads) {
  const std::size_t size = 2 * kDigestBlock + 12;
  std::string data(size, 'x');
  const std::string header = fmt::format(
      R"({{"a":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})", size / 4, size);
  const std::string digest = file(safetensors_bytes(header, data)).digest();
  std::thread([&] {  // a pool changes the floating-point mode of its thread
    runtime::ThreadPool pool(3);
    EXPECT_EQ(file(safetensors_bytes(header, data)).digest(&pool), digest);
    for (const std::size_t at : {kDigestBlock, size - 1}) {
      data[at] = 'y';
      EXPECT_NE(file(safetensors_bytes(header, data)).digest(&pool), digest) << at;
      data[at] = 'x';
    }
  })
      .join();
}

TEST_F(Safetensors, ReadsUnalignedData) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  for (int spaces = 0; spaces < 8; ++spaces) {
    const auto read =
        file(safetensors_bytes(header + std::string(spaces, ' '), bytes_of<float>({0.25f, -3})));
    EXPECT_THAT(read_floats(read, "a", {2}), ElementsAre(0.25f, -3));
  }
}

TEST_F(Safetensors, RefusesFilesOfAnotherFormat) {
  expect_failure([&] { SafetensorsFile{path_}; }, ExitCode::kWeights,
                 AllOf(HasSubstr(path_.string()), HasSubstr("No such file")));
  expect_failure([&] { SafetensorsFile{directory_.path()}; }, ExitCode::kWeights,
                 HasSubstr("not a regular file"));
  expect_refused("", "is 0 bytes long");
  expect_refused("1234567", "is 7 bytes long");
}

TEST_F(Safetensors, RefusesAHeaderLongerThanTheFileOrTheLimit) {
  expect_refused(std::string("\x09\0\0\0\0\0\0\0{}      ", 16),
                 "header of 9 bytes is past the end of the file of 16");
  expect_refused(std::string(8, '\xff') + "{}", "18446744073709551615 bytes, expected at most");
}

TEST_F(Safetensors, RefusesAHeaderThatIsNotAnObjectOfTensors) {
  expect_header_refused("", "the header is not valid JSON at byte");
  expect_header_refused(
      "{\"a\"}", "the header is not valid JSON at byte 5 of it, expected an object of tensors");
  expect_header_refused(R"({"a":1e999})", "the header has a number out of range");
  expect_header_refused("[]", "the header is a JSON array, expected an object of tensors");
  expect_header_refused(R"({"a":1})", "tensor \"a\": the description is not an object");
  expect_header_refused(R"({"a":[[[[]]]]})", "nests deeper");
  expect_header_refused(R"({"__metadata__":{"format":1}})", "the value of \"format\"");
}

TEST_F(Safetensors, RefusesMissingUnknownAndMalformedFields) {
  expect_header_refused(R"({"a":{"shape":[4],"data_offsets":[0,16]}})", "dtype is missing");
  expect_header_refused(R"({"a":{"dtype":"F32","data_offsets":[0,16]}})", "shape is missing");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[4]}})", "data_offsets is missing");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"x":1}})",
                        "unknown field \"x\"");
  expect_header_refused(R"({"a":{"dtype":"F33","shape":[4],"data_offsets":[0,16]}})",
                        "dtype is \"F33\"");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", "contains");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})", "contains");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":["4"],"data_offsets":[0,16]}})", "contains");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0]}})",
                        "expected [begin, end]");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})",
                        "expected [begin, end]");
}

TEST_F(Safetensors, RefusesManyEmptyTensorsWithoutQuadraticTime) {
  std::string header = "{";
  for (int i = 0; i < 200'000; ++i) header += fmt::format("\"{}\":{{}},", i);
  header.back() = '}';
  expect_header_refused(header, "tensor \"0\": dtype is missing");
}

TEST_F(Safetensors, RefusesDuplicateNames) {
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                        R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                        "the header has \"a\" twice");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[8],"shape":[4],"data_offsets":[0,16]}})",
                        "the header has \"shape\" twice");
}

TEST_F(Safetensors, AllowsEqualFieldsInDifferentTensors) {
  EXPECT_EQ(file(safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                   R"("shape":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                   "12345678"))
                .tensors()
                .size(),
            2u);
}

TEST_F(Safetensors, RefusesBytesThatDoNotMatchTheShape) {
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})",
                        "tensor \"a\": data_offsets cover 16 bytes, expected 12 for F32 [3]");
  expect_header_refused(
      R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}})",
      "larger than any file");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[18446744073709551616],)"
                        R"("data_offsets":[0,16]}})",
                        "expected non-negative integers");
}

TEST_F(Safetensors, RefusesATruncatedFile) {
  const std::string whole = safetensors_bytes(
      R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", std::string(16, 'x'));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    expect_failure([&] { file(whole.substr(0, length)); }, ExitCode::kWeights,
                   HasSubstr(path_.string()));
  }
  expect_refused(whole.substr(0, whole.size() - 1), "are past the end of the data of 15 bytes");
}

TEST_F(Safetensors, RefusesOverlapsGapsAndUnusedBytes) {
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                        R"("b":{"dtype":"F32","shape":[3],"data_offsets":[4,16]}})",
                        "tensor \"b\": begins at byte 4 and overlaps tensor \"a\"");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                        R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                        "tensor \"b\": begins at byte 8, expected 4");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
                        "has 16 bytes of data, expected 12");
}

TEST_F(Safetensors, NamesTheFoundAndTheExpectedShapeAndDtype) {
  const auto read =
      file(safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                             R"("n":{"dtype":"I64","shape":[1],"data_offsets":[16,24]}})",
                             std::string(24, '\0')));
  const auto refuses = [&](auto call, const char* part) {
    expect_failure(call, ExitCode::kWeights, AllOf(HasSubstr(path_.string()), HasSubstr(part)));
  };
  refuses([&] { read.at("x", {4}); }, "has no tensor \"x\", expected one of shape [4]");
  refuses([&] { read.at("a", {4}); }, "tensor \"a\": found shape [2, 2], expected [4]");
  refuses([&] { read_floats(read, "n", {1}); },
          "tensor \"n\": found dtype I64, expected F32, F16, BF16 or F64");
}

// A file with random changes is refused, or its tensors are inside the file.
TEST_F(Safetensors, ReadsWithinTheFileForRandomBytes) {
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
      const FileTensors file = parse_safetensors(view, "x", ExitCode::kWeights);
      for (const auto& [name, tensor] : file.tensors) {
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
