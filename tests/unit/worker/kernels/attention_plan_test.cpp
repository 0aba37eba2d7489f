// The cut of attention into tasks for many threads. Nothing is computed.
#include "worker/kernels/attention_plan.h"

#include <gtest/gtest.h>

namespace tilewright::kernels {
namespace {

TEST(AttentionThreadUse, IsTheShareOfTheTimeOfTheSlowestThread) {
  const AttentionSize size{2, 3, 128};                       // 6 heads of 2 blocks of queries
  EXPECT_DOUBLE_EQ(thread_use(size, {3, 128}, 2), 1.0);      // an example per thread
  EXPECT_DOUBLE_EQ(thread_use(size, {1, 128}, 4), 6.0 / 8);  // two rounds of a head
  EXPECT_DOUBLE_EQ(thread_use(size, {1, 64}, 4), 1.0);       // three rounds of a block
}

TEST(AttentionCut, KeepsWholeExamplesForFewThreads) {
  for (const int threads : {1, 2, 4}) {
    const AttentionCut cut = cut_attention_forward({32, 12, 128}, threads);
    EXPECT_EQ(cut.heads, 12);
    EXPECT_EQ(cut.queries, 128);
  }
}

TEST(AttentionCut, KeepsWholeHeadsIfTheyKeepTheThreadsBusy) {
  for (const int threads : {6, 12, 48}) {
    const AttentionCut cut = cut_attention_forward({4, 12, 384}, threads);
    EXPECT_EQ(cut.heads, 1);
    EXPECT_EQ(cut.queries, 384);
  }
}

TEST(AttentionCut, CutsTheQueriesOfTooFewHeads) {
  EXPECT_EQ(cut_attention_forward({1, 12, 384}, 72).queries, 64);
  EXPECT_EQ(cut_attention_backward({1, 12, 384}, 72).queries, 384);
}

TEST(AttentionCut, AcceptsEmptyBatchesAndExamples) {
  EXPECT_EQ(thread_use({0, 12, 0}, cut_attention_forward({0, 12, 0}, 56), 56), 1);
  EXPECT_GT(cut_attention_forward({3, 12, 0}, 56).queries, 0);
}

// BERT-base and BERT-large: 12 examples, and large's 8 of `bench attention`.
constexpr AttentionSize kBase = {12, 12, 384};
constexpr AttentionSize kLarge = {12, 16, 384};
constexpr AttentionSize kLargeWith8 = {8, 16, 384};

class AttentionOnManyThreads : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Cores, AttentionOnManyThreads,
                         ::testing::Values(16, 24, 32, 48, 56, 60, 112));

TEST_P(AttentionOnManyThreads, KeepsThemBusyInForward) {
  for (const AttentionSize& size : {kBase, kLarge, kLargeWith8}) {
    SCOPED_TRACE(::testing::Message() << size.B << " x " << size.heads);
    EXPECT_GE(thread_use(size, cut_attention_forward(size, GetParam()), GetParam()), 0.85);
  }
}

// The last round of whole heads leaves threads idle; README.md says why backward keeps them whole.
TEST(AttentionBackward, IsComputedInRoundsOfWholeHeads) {
  const auto expect_rounds = [](const AttentionSize& size, int threads, int rounds) {
    EXPECT_DOUBLE_EQ(thread_use(size, cut_attention_backward(size, threads), threads),
                     static_cast<double>(size.B * size.heads) / (rounds * threads))
        << size.B << " x " << size.heads << " on " << threads;
  };
  expect_rounds(kBase, 56, 3);         // 86 %
  expect_rounds(kBase, 60, 3);         // 80 %
  expect_rounds(kBase, 112, 2);        // 64 %
  expect_rounds(kLarge, 56, 4);        // 86 %
  expect_rounds(kLarge, 60, 4);        // 80 %
  expect_rounds(kLarge, 112, 2);       // 86 %
  expect_rounds(kLargeWith8, 56, 3);   // 76 %
  expect_rounds(kLargeWith8, 60, 3);   // 71 %
  expect_rounds(kLargeWith8, 112, 2);  // 57 %
}

}  // namespace
}  // namespace tilewright::kernels
