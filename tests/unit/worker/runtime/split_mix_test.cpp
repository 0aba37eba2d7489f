#include "worker/runtime/split_mix.h"

#include <gtest/gtest.h>

namespace tilewright::runtime {
namespace {

// The first numbers for seed 1234567, published with the generator's reference code.
TEST(SplitMix64, MatchesThePublishedNumbers) {
  SplitMix64 random(1234567);
  for (const std::uint64_t expected :
       {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u,
        16408922859458223821u}) {
    EXPECT_EQ(random.next(), expected);
  }
}

TEST(SplitMix64, NthMatchesTheSequence) {
  SplitMix64 random(42);
  for (std::uint64_t n = 1; n <= 5; ++n) EXPECT_EQ(random.next(), SplitMix64::nth(42, n));
}

}  // namespace
}  // namespace tilewright::runtime
