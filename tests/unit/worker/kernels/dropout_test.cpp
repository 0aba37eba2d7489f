#include "worker/kernels/dropout/dropout.h"

#include <bit>

#include "tests/unit/worker/kernels/kernel_cases.h"
#include "worker/kernels/isa_table.h"

namespace tilewright::kernels {
namespace {

// Known answers published with the generator (Random123, kat_vectors, philox4x32 10).
TEST(Philox, MatchesThePublishedVectors) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxBlock{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox4x32_10({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
                          {0xa4093822u, 0x299f31d0u}),
            (PhiloxBlock{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(DropoutMasks, FollowTheDocumentedBitLayout) {
  const DropoutStream stream = make_dropout_stream(testing::make_dropout(0.5));
  std::uint64_t masks[3] = {};
  dropout_masks_ref(stream, 11, 22, 3, 150, masks);
  for (std::uint32_t column = 0; column < 192; ++column) {
    const PhiloxBlock words =
        philox4x32_10({column / 64 * 8 + column % 16 / 2, 22, stream.site | 3u << 16, 11},
                      {stream.key[0], stream.key[1]});
    const std::uint32_t word = words[column % 64 / 16];
    const std::uint32_t bits = column % 2 == 0 ? word & 0xffffu : word >> 16;
    EXPECT_EQ(masks[column / 64] >> column % 64 & 1, bits >= stream.threshold ? 1u : 0u) << column;
  }
}

TEST(DropoutMasks, ChangeWithEveryPartOfTheKey) {
  const auto draw = [](Dropout d, std::int32_t example, std::int32_t row, std::int32_t head) {
    std::uint64_t mask = 0;
    dropout_masks_ref(make_dropout_stream(d), example, row, head, 64, &mask);
    return mask;
  };
  const Dropout base = testing::make_dropout(0.5);
  const std::uint64_t mask = draw(base, 1, 2, 3);
  EXPECT_EQ(mask, draw(base, 1, 2, 3));
  EXPECT_NE(mask, draw(base, 2, 2, 3));
  EXPECT_NE(mask, draw(base, 1, 3, 3));
  EXPECT_NE(mask, draw(base, 1, 2, 4));
  for (int part = 0; part < 3; ++part) {
    Dropout other = base;
    if (part == 0) other.seed += 1;
    if (part == 1) other.step += 1;
    if (part == 2) other.site += 1;
    EXPECT_NE(mask, draw(other, 1, 2, 3)) << part;
  }
}

// The number of N elements kept with probability q differs from N q by more than
// 5 sqrt(N q (1 - q)) once in two million draws. The keys are fixed, so the result is too.
TEST(DropoutMasks, KeepTheExpectedFraction) {
  for (const double p : {0.1, 0.5, 0.002, 0.9}) {
    const Dropout dropout = testing::make_dropout(p);
    const DropoutStream stream = make_dropout_stream(dropout);
    double kept = 0;
    std::vector<double> by_column(1024);
    const int rows = 2000;
    for (int row = 0; row < rows; ++row) {
      std::uint64_t masks[16];
      dropout_masks_ref(stream, row / 100, row % 100, 0, 1024, masks);
      for (int c = 0; c < 1024; ++c) {
        const double keep = (masks[c / 64] >> c % 64 & 1) != 0 ? 1 : 0;
        kept += keep;
        by_column[static_cast<std::size_t>(c)] += keep;
      }
    }
    const double q = 1 - dropout.threshold / 65536.0;
    EXPECT_NEAR(kept, rows * 1024 * q, 5 * std::sqrt(rows * 1024 * q * (1 - q))) << p;
    for (const double count : by_column) {
      EXPECT_NEAR(count, rows * q, 5 * std::sqrt(rows * q * (1 - q)) + 1) << p;
    }
  }
}

using DropoutMasksIsaTest = testing::IsaTest;

TEST_P(DropoutMasksIsaTest, MatchTheReference) {
  for (const double p : {0.1, 0.5, 1.0 / 65536, 65535.0 / 65536, 1.0}) {
    Dropout dropout = testing::make_dropout(p, 12345);
    const DropoutStream stream = make_dropout_stream(dropout);
    for (const std::int64_t columns : {1, 16, 63, 64, 65, 128, 129, 384, 500, 768, 1024}) {
      const auto words = static_cast<std::size_t>((columns + 63) / 64);
      std::vector<std::uint64_t> want(words);
      std::vector<std::uint64_t> got(words + 1, 0x5555);
      dropout_masks_ref(stream, 1 << 20, 300, 15, columns, want.data());
      isa_row(GetParam())
          .kernels->parameters.dropout_masks(stream, 1 << 20, 300, 15, columns, got.data());
      EXPECT_EQ(got.back(), 0x5555u) << "wrote past the row's masks";
      got.pop_back();
      EXPECT_EQ(got, want) << p << " " << columns;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, DropoutMasksIsaTest, ::testing::ValuesIn(runtime::kAllIsas),
                         testing::isa_name);

}  // namespace
}  // namespace tilewright::kernels
