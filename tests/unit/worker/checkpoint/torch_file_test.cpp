// Reads files that torch wrote (tests/golden/weights), and changed or invalid ones.
#include "worker/checkpoint/torch_file.h"

#include <bit>
#include <random>

#include "tests/support/read_floats.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "tests/unit/worker/checkpoint/torch_testing.h"
#include "worker/checkpoint/safetensors.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace pickled;  // NOLINT: builders

// Files of the same state dict.
constexpr const char* kFormats[] = {"zip.bin", "legacy.bin", "zip_protocol4.bin",
                                    "legacy_protocol4.bin"};

std::filesystem::path golden(const std::string& name) {
  return golden_weights() / "tensors" / name;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

Tensors parse(const std::vector<std::byte>& bytes) {
  return parse_torch_file(bytes, "model.bin", ExitCode::kWeights).tensors;
}

void expect_file_refused(const std::string& file, const std::string& part) {
  const auto bytes = exact_copy(file);
  expect_failure([&] { parse(bytes); }, ExitCode::kWeights,
                 AllOf(HasSubstr("model.bin: "), HasSubstr(part)));
}

TEST(TorchFileTest, ReadsEveryDtypeAndLayoutAsTorchDoes) {
  const SafetensorsFile expected(golden("expected.safetensors"));
  ASSERT_GT(expected.tensors().size(), 10u);
  for (const char* format : kFormats) {
    const TorchFile file(golden(format));
    EXPECT_EQ(file.tensors().size(), expected.tensors().size() + 2) << "integers, flags";
    for (const auto& [name, tensor] : expected.tensors()) {
      ASSERT_NE(file.find(name), nullptr) << format << " " << name;
      EXPECT_EQ(file.find(name)->shape, tensor.shape) << format << " " << name;
      EXPECT_EQ(bits_of(read_floats(file, name, tensor.shape)),
                bits_of(read_floats(expected, name, tensor.shape)))
          << format << " " << name;
    }
    EXPECT_THAT(values_of<std::int64_t>(file.at("integers", {5})), ElementsAre(0, 1, 2, 3, 4));
    EXPECT_EQ(file.find("flags")->dtype, DType::kBool);
  }
}

TEST(TorchFileTest, CopiesAnyRangeOfAStridedTensor) {
  const TorchFile file(golden("zip.bin"));
  const Tensor& tensor = *file.find("permuted");
  ASSERT_FALSE(tensor.strides.empty());
  const std::vector<float> whole = read_floats(file, "permuted", tensor.shape);
  for (std::size_t first = 0; first <= whole.size(); ++first) {
    for (std::size_t count = 0; first + count <= whole.size(); ++count) {
      std::vector<float> part(count);
      copy_floats(tensor, static_cast<std::int64_t>(first), part);
      EXPECT_TRUE(
          std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)));
    }
  }
}

TEST(TorchFileTest, RefusesOtherDtypes) {
  const TorchFile file(golden("legacy.bin"));
  expect_failure([&] { file.check_floats("integers", {5}); }, ExitCode::kWeights,
                 HasSubstr("tensor \"integers\": found dtype I64, expected F32"));
}

TEST(TorchFileTest, RefusesAPickleThatCallsACommand) {
  for (const char* name : {"malicious_zip.bin", "malicious_legacy.bin"}) {
    expect_failure([&] { TorchFile file(golden(name)); }, ExitCode::kWeights,
                   AllOf(HasSubstr(name),
                         HasSubstr(": the pickle calls posix.system; expected only tensors")));
  }
}

TEST(TorchFileTest, RefusesFilesOfAnotherKind) {
  expect_file_refused("", "begins with \"\", expected a file written by torch.save");
  expect_file_refused("version https://git-lfs.github.com/spec/v1\n",
                      "begins with \"version https://\", expected a file written by torch.save");
  expect_file_refused("\x80\x02K\x01.", "expected a file written by torch.save");
  expect_file_refused(zip_archive({{"a/b", ""}}), "no file data.pkl");
  expect_file_refused(zip_archive({{"data.pkl", ""}, {"a/b/data.pkl", ""}}), "no file data.pkl");
  expect_file_refused(zip_archive({{"a/data.pkl", ""}, {"b/data.pkl", ""}}),
                      "several files data.pkl");
  expect_file_refused(zip_archive({{"a/data.pkl", "N."}, {"a/byteorder", "big"}}),
                      "byte order \"big\", expected \"little\"");
  const std::string whole = legacy_file("}", {});
  EXPECT_TRUE(parse(exact_copy(whole)).empty());
  const auto with = [&](const std::string& from, const std::string& to) {
    return std::string(whole).replace(whole.find(from), from.size(), to);
  };
  expect_file_refused(with("M\xe9\x03", "M\xe8\x03"), "with the protocol 1001");
  expect_file_refused(with("\x88", "\x89"), "big-endian");
  expect_file_refused("K\x01." + whole, "another magic number");
}

TEST(TorchFileTest, RefusesAPickleThatIsNoStateDict) {
  expect_file_refused(legacy_file("]", {}), "is not a dictionary");
  expect_file_refused(legacy_file("}N"
                                  "Ns",
                                  {}),
                      "a key that is not a string");
  expect_file_refused(legacy_file(dict({{"epoch", integer(3)}}), {}),
                      "has \"epoch\", which is not a tensor");
  expect_file_refused(legacy_file(dict({{"model", dict({})}}), {}), "has \"model\", which is not");
  const std::string one = tensor(storage("FloatStorage", "0", 1), 0, {}, {});
  expect_file_refused(legacy_file(dict({{"a", one}, {"a", one}}), {{"0", 1, "1234"}}),
                      "has \"a\" twice");
}

TEST(TorchFileTest, RefusesStoragesThatDoNotFit) {
  const std::string state = dict({{"a", tensor(storage("FloatStorage", "0", 2), 0, {2}, {1})}});
  EXPECT_EQ(parse(exact_copy(legacy_file(state, {{"0", 2, "12345678"}}))).size(), 1u);
  expect_file_refused(legacy_file(state, {}), "tensor \"a\": the file has no storage \"0\"");
  expect_file_refused(legacy_file(state, {{"1", 2, "12345678"}}), "a storage that no tensor uses");
  expect_file_refused(legacy_file(state, {{"0", 3, "12345678"}}), "has 3 elements, expected 2");
  expect_file_refused(legacy_file(state, {{"0", 2, "1234567"}}), "truncated");
  const std::string huge =
      dict({{"a", tensor(storage("DoubleStorage", "0", INT64_MAX), INT64_MAX - 1, {}, {})}});
  expect_file_refused(legacy_file(huge, {{"0", INT64_MAX, ""}}), "larger than any file");
  const auto zip = [](const std::string& pickle, const std::string& data) {
    return zip_archive({{"a/data.pkl", pickle + "."}, {"a/data/0", data}});
  };
  EXPECT_EQ(parse(exact_copy(zip(state, "12345678"))).size(), 1u);
  expect_file_refused(zip(state, "1234567"),
                      "storage \"0\" has 7 bytes, expected 2 elements of F32");
  expect_file_refused(zip(huge, ""),
                      "storage \"0\" has 0 bytes, expected 9223372036854775807 elements");
  // 2^61 + 1 elements of 8 bytes are 8 bytes modulo 2^64.
  const std::int64_t wraps = (std::int64_t{1} << 61) + 1;
  expect_file_refused(
      zip(dict({{"a", tensor(storage("DoubleStorage", "0", wraps), wraps - 1, {}, {})}}),
          "12345678"),
      "storage \"0\" has 8 bytes, expected 2305843009213693953 elements");
}

TEST(TorchFileTest, RefusesTruncatedFiles) {
  for (const char* format : kFormats) {
    const std::string whole = tilewright::testing::read_text(golden(format));
    ASSERT_FALSE(parse(exact_copy(whole)).empty());
    for (std::size_t length = 0; length < whole.size(); ++length) {
      expect_file_refused(whole.substr(0, length), "");
    }
  }
}

// A changed file is refused, or its tensors are inside the file.
TEST(TorchFileTest, ReadsWithinTheFileForChangedBytes) {
  for (const char* format : {"zip.bin", "legacy.bin"}) {
    const auto whole = exact_copy(tilewright::testing::read_text(golden(format)));
    int refused = 0;
    for (std::size_t at = 0; at < whole.size(); ++at) {
      for (const int flip : {0x01, 0xff}) {
        auto changed = whole;
        changed[at] ^= static_cast<std::byte>(flip);
        try {
          touch(parse(changed));
        } catch (const Failure&) {
          ++refused;
        }
      }
    }
    EXPECT_GT(refused, 1000) << format;
  }
}

}  // namespace
}  // namespace tilewright::checkpoint
