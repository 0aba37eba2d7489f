// The cut of linear layers into tasks for many threads. Nothing is computed, so the tests run on
// every CPU.
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "worker/kernels/gemm/linear.h"
#include "worker/kernels/gemm/plan.h"
#include "worker/kernels/isa_entries.h"

namespace tilewright::kernels {
namespace {

TEST(ThreadUse, IsTheShareOfTheTimeOfTheSlowestThread) {
  const TiledMatrix matrix{64, 64, 16, 16};                      // 4 x 4 tiles
  EXPECT_DOUBLE_EQ(thread_use(matrix, {16, 64}, 4), 1.0);        // one row of tiles per thread
  EXPECT_DOUBLE_EQ(thread_use(matrix, {16, 64}, 3), 16.0 / 24);  // two rounds of four tiles
  EXPECT_DOUBLE_EQ(thread_use(matrix, {64, 64}, 2), 0.5);        // one block, one idle thread
}

TEST(FastestBlocks, AreCutInBothDirectionsIfTheRowsAreFew) {
  const TiledMatrix matrix{64, 1024, 32, 32};
  const BlockSize block = fastest_blocks(matrix, {64, 1024}, 16);
  EXPECT_GE(block.count(matrix), 16);
  EXPECT_DOUBLE_EQ(thread_use(matrix, block, 16), 1.0);
}

TEST(FastestBlocks, StayBelowTheLargestBlock) {
  const TiledMatrix matrix{1000, 1000, 14, 32};
  for (const int threads : {1, 2, 7, 56}) {
    const BlockSize block = fastest_blocks(matrix, {112, 320}, threads);
    EXPECT_LE(block.rows, 112);
    EXPECT_LE(block.columns, 320);
    EXPECT_EQ(block.rows % 14, 0);
    EXPECT_EQ(block.columns % 32, 0);
  }
}

// A thread remembers its last answers, a new thread has none.
TEST(BusyBlocks, AreTheSameHoweverOftenOneAsks) {
  std::vector<TiledMatrix> matrices;
  for (std::int64_t rows = 14; rows < 1400; rows += 14) {
    matrices.push_back({rows, 4096 - rows, 14, 32, 0.5, rows % 28 == 0 ? 1.0 : 4.0});
  }
  const auto ask = [&](std::int64_t matrix, int threads) {
    return keep_threads_busy(matrices[static_cast<std::size_t>(matrix)], {280, 2048}, threads);
  };
  for (std::int64_t i = 0; i < std::ssize(matrices); ++i) {
    for (const int threads : {24, 56}) {
      const BlockSize first = std::async(std::launch::async, ask, i, threads).get();
      EXPECT_EQ(ask(i, threads), first);
      EXPECT_EQ(ask(i, threads), first);
      if (i > 0) ask(i - 1, threads);
      EXPECT_EQ(ask(i, threads), first);
    }
  }
}

struct Layer {
  std::int64_t k, n;
};
// qkv, attention output, intermediate and output of BERT-base and BERT-large.
constexpr Layer kLayers[] = {{768, 2304},  {768, 768},   {768, 3072},  {3072, 768},
                             {1024, 3072}, {1024, 1024}, {1024, 4096}, {4096, 1024}};

class ManyThreads : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Cores, ManyThreads, ::testing::Values(16, 24, 32, 48, 56, 60, 112));

TEST_P(ManyThreads, AreBusyInEveryProductOfBertBaseAndLarge) {
  for (const Engine<runtime::bf16>* engine : {&kAmx, &kAvx512Bf16}) {
    for (const auto& [k, n] : kLayers) {
      SCOPED_TRACE(::testing::Message() << engine->name << ", " << k << " to " << n);
      const LayerUse use = layer_thread_use(*engine, 4600, k, n, GetParam());
      EXPECT_GE(use.forward, 0.85);
      EXPECT_GE(use.backward_input, 0.85);
      EXPECT_GE(use.backward_weight, 0.85);
    }
  }
}

}  // namespace
}  // namespace tilewright::kernels
