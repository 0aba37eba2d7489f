// Arrow streams whose record batches have been changed: lengths and offsets that cannot be right.
#include "worker/columnar/arrow_stream.h"

#include <cstring>

#include "tests/unit/worker/columnar/columnar_testing.h"

namespace tilewright::columnar {
namespace {

using ::testing::HasSubstr;

// stsb.arrow has one batch of 3 rows: "a", "bc", "" in sentence1, floats in label, integers in idx.
class ChangedStream : public ::testing::Test {
 protected:
  template <typename Value>
  static std::string bytes_of(const std::vector<Value>& values) {
    std::string bytes(values.size() * sizeof(Value), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  // Replaces the only occurrence of `from`.
  template <typename Value>
  void replace(const std::vector<Value>& from, const std::vector<Value>& to) {
    const std::string bytes = bytes_of(from);
    const std::size_t at = content_.find(bytes);
    ASSERT_NE(at, std::string::npos);
    ASSERT_EQ(content_.find(bytes, at + 1), std::string::npos);
    content_.replace(at, bytes.size(), bytes_of(to));
  }

  std::string refusal() const {
    return failure_of([&] { parse_table(content_, "FILE.arrow"); });
  }

  std::string content_ = tilewright::testing::read_text(data_file("stsb.arrow"));
};

TEST_F(ChangedStream, OffsetsOfStringsMustNotDecrease) {
  replace<std::int32_t>({0, 1, 3, 3}, {0, 3, 1, 3});
  EXPECT_THAT(refusal(), HasSubstr("an array has offset 1 after offset 3"));
}

TEST_F(ChangedStream, OffsetsOfStringsMustBeInTheirBuffer) {
  replace<std::int32_t>({0, 1, 3, 3}, {0, 1, 3, 1000});
  EXPECT_THAT(refusal(), HasSubstr("expected at least 1000"));
}

TEST_F(ChangedStream, OffsetsOfStringsMustNotBeNegative) {
  replace<std::int32_t>({0, 1, 3, 3}, {-5, -4, -3, -2});
  EXPECT_THAT(refusal(), HasSubstr("expected at least 18446744073709551614"));
}

TEST_F(ChangedStream, ArraysMustHaveTheRowsOfTheBatch) {
  replace<std::int64_t>({3, 0, 3, 0, 3, 0}, {3, 0, 2, 0, 3, 0});
  EXPECT_THAT(refusal(), HasSubstr("an array of column \"label\" has 2 elements, expected 3"));
}

TEST_F(ChangedStream, ArraysMustNotHaveANegativeLength) {
  replace<std::int64_t>({3, 0, 3, 0, 3, 0}, {3, 0, -1, 0, 3, 0});
  EXPECT_THAT(refusal(), HasSubstr("an array has -1 elements and 0 nulls"));
}

TEST_F(ChangedStream, NullsNeedTheBitmap) {
  replace<std::int64_t>({3, 0, 3, 0, 3, 0}, {3, 0, 3, 1, 3, 0});
  EXPECT_THAT(refusal(), HasSubstr("a buffer has 0 bytes, expected at least 1"));
}

TEST_F(ChangedStream, ArraysMustNotBeLongerThanTheBatch) {
  constexpr std::int64_t kMany = std::int64_t{1} << 62;
  replace<std::int64_t>({3, 0, 3, 0, 3, 0}, {kMany, 0, kMany, 0, kMany, 0});
  EXPECT_THAT(refusal(), HasSubstr("has 4611686018427387904 elements, expected 3"));
}

TEST_F(ChangedStream, BodiesMustBeInTheFile) {
  const std::size_t end = content_.rfind(std::string("\xff\xff\xff\xff\0\0\0\0", 8));
  ASSERT_NE(end, std::string::npos);
  content_.resize(end - 8);
  EXPECT_THAT(refusal(), HasSubstr("for the body of a message"));
}

}  // namespace
}  // namespace tilewright::columnar
