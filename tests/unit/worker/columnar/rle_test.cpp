// Values from the Parquet format's description of the hybrid encoding, and malformed runs.
#include "worker/columnar/rle.h"

#include "tests/unit/worker/columnar/columnar_testing.h"

namespace tilewright::columnar {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<std::uint32_t> decode(const std::vector<std::uint8_t>& bytes, unsigned bit_width,
                                  std::size_t count) {
  RleDecoder decoder(std::as_bytes(std::span(bytes)), bit_width, kPlace);
  std::vector<std::uint32_t> values(count);
  // In pieces, which end within runs.
  for (std::size_t at = 0; at < count; at += 3) {
    decoder.read(std::span(values).subspan(at, std::min<std::size_t>(3, count - at)));
  }
  return values;
}

TEST(Rle, UnpacksTheNumbersOfTheFormatsDescription) {
  // "1000 1000 1100 0110 1111 1010": the numbers 0 to 7 with 3 bits, after a header for 1 group.
  EXPECT_THAT(decode({0x03, 0x88, 0xc6, 0xfa}, 3, 8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(Rle, RepeatsAValue) {
  EXPECT_THAT(decode({0x90, 0x03, 5}, 3, 200), Each(5u));
  EXPECT_THAT(decode({4 << 1, 0x34, 0x12}, 13, 4), Each(0x1234u));
  EXPECT_THAT(decode({4 << 1, 0xff, 0xff, 0xff, 0xff}, 32, 4), Each(0xffffffffu));
}

TEST(Rle, ContinuesWithTheNextRun) {
  EXPECT_THAT(decode({2 << 1, 1, 0x03, 0b10100110, 3 << 1, 0}, 1, 13),
              ElementsAreArray({1, 1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 0}));
}

TEST(Rle, AWidthOfZeroHasNoBytes) { EXPECT_THAT(decode({}, 0, 10), Each(0u)); }

TEST(Rle, UnpacksWideValuesUpToTheLastByte) {
  std::vector<std::uint8_t> bytes = {0x03};
  for (std::uint8_t i = 0; i < 8; ++i) bytes.insert(bytes.end(), {i, 0, 0, 0x80});
  EXPECT_THAT(decode(bytes, 32, 8),
              ElementsAre(0x80000000u, 0x80000001u, 0x80000002u, 0x80000003u, 0x80000004u,
                          0x80000005u, 0x80000006u, 0x80000007u));
}

TEST(Rle, AcceptsAGroupWithoutItsUnusedBytes) {
  EXPECT_THAT(decode({0x03, 0x21}, 4, 2), ElementsAre(1, 2));
  EXPECT_THAT(failure_of([] { decode({0x03, 0x21}, 4, 3); }), HasSubstr("FILE: found 0 bytes"));
}

TEST(Rle, RefusesMalformedRuns) {
  const auto refusal = [](const std::vector<std::uint8_t>& bytes, unsigned bit_width) {
    return failure_of([&] { decode(bytes, bit_width, 8); });
  };
  EXPECT_THAT(refusal({}, 1), HasSubstr("expected 1 bytes for the header of a run"));
  EXPECT_THAT(refusal({0x80}, 1), HasSubstr("the header of a run"));
  EXPECT_THAT(refusal({0x00, 0x00}, 1), HasSubstr("a run has no values"));
  EXPECT_THAT(refusal({0x01}, 1), HasSubstr("a run has no values"));
  EXPECT_THAT(refusal({0x03}, 1), HasSubstr("a bit-packed run has no values"));
  EXPECT_THAT(refusal({8 << 1}, 1), HasSubstr("the value of a run"));
  EXPECT_THAT(refusal({8 << 1, 2}, 1), HasSubstr("a run has the value 2, expected one of 1 bits"));
  EXPECT_THAT(refusal({0xff, 0xff, 0xff, 0x7f, 0x00}, 8), HasSubstr("is past the end"));
  EXPECT_THAT(refusal(std::vector<std::uint8_t>(11, 0xff), 8), HasSubstr("more than 64 bits"));
  EXPECT_THAT(refusal({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 32),
              HasSubstr("is past the end"));
}

}  // namespace
}  // namespace tilewright::columnar
