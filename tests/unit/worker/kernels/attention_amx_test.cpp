// Attention on AMX tiles: on the emulator against double precision, and the emulator's bits against
// the hardware's.
#include "tests/unit/worker/kernels/attention_cases.h"
#include "tests/unit/worker/kernels/model_kernels.h"
#include "worker/kernels/attention_plan.h"

namespace tilewright::kernels::testing {
namespace {

struct Batch {
  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> attended;  // empty: all tokens
  std::int64_t head_size;
};

constexpr std::int64_t kHeads = 2;

// Lengths around the tiles of 16 queries, the chunks of 32 keys and the blocks of 128 queries; head
// sizes below, at and above whole tiles and the tile registers.
std::vector<Batch> batches() {
  std::vector<Batch> all;
  for (std::int64_t head_size = 8; head_size <= 136; head_size += 8) {
    all.push_back({{1, 15, 33, 48}, {}, head_size});
  }
  for (const std::int64_t head_size : {2, 26, 30, 34, 66}) {
    all.push_back({{1, 15, 33, 48}, {}, head_size});
  }
  all.push_back({{2, 0, 16, 17, 31, 32, 53, 64}, {}, 32});
  all.push_back({{128, 129, 145, 260}, {}, 64});
  all.push_back({{40, 64, 65, 150}, {1, 33, 48, 131}, 64});
  return all;
}

class AmxAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_supports(Isa::kAvx512Bf16)) GTEST_SKIP() << "this CPU has no avx512_bf16";
  }
  static AttentionResult<bf16> run(const Ops<bf16>& ops, const Batch& batch, const Examples& e,
                                   const Dropout& dropout, int threads = 2) {
    const std::int64_t width = kHeads * batch.head_size;
    return run_attention<bf16>(ops, threads, e, kHeads, batch.head_size, qkv(e, width).data(),
                               d_context(e, width).data(), dropout,
                               batch.attended.empty() ? nullptr : batch.attended.data());
  }
  static std::vector<bf16> qkv(const Examples& e, std::int64_t width) {
    return random_vector<bf16>(static_cast<std::size_t>(3 * e.tokens() * width), 1);
  }
  static std::vector<bf16> d_context(const Examples& e, std::int64_t width) {
    return random_vector<bf16>(static_cast<std::size_t>(e.tokens() * width), 2);
  }
  static Ops<bf16> emulated() { return kernels_of_emulated_amx().ops; }
};

TEST_F(AmxAttention, OnEmulatedTilesAgreesWithDoublePrecision) {
  for (const Batch& batch : batches()) {
    if (!batch.attended.empty()) continue;
    SCOPED_TRACE(batch.head_size);
    const Examples e = make_examples(batch.lengths, 100);
    const std::int64_t width = kHeads * batch.head_size;
    for (const double p : {0.0, 0.1}) {
      const auto got = run(emulated(), batch, e, make_dropout(p));
      const auto want = attention_in_double(e, kHeads, batch.head_size, doubles(qkv(e, width)),
                                            doubles(d_context(e, width)), make_dropout(p));
      expect_sums(got.context, want.context, want.context_terms, "context");
      expect_close(got.lse, want.lse, 4 * kRoundoff<float>, 64 * kRoundoff<float>, "lse");
      expect_sums(got.d_qkv, want.d_qkv, want.d_qkv_terms, "d_qkv");
    }
  }
}

TEST_F(AmxAttention, OfAFewHeadsHasTheSameBitsForAnyNumberOfThreads) {
  const Batch batch{{260, 60}, {201, 60}, 64};
  const Examples e = make_examples(batch.lengths, 100);
  const auto want = run(emulated(), batch, e, make_dropout(0.1), 1);
  for (const int threads : {3, 5, 16}) {
    ASSERT_LT(cut_attention_forward({2, kHeads, 260}, threads).queries, 260);
    const auto got = run(emulated(), batch, e, make_dropout(0.1), threads);
    EXPECT_EQ(got.context, want.context) << threads;
    EXPECT_EQ(got.lse, want.lse) << threads;
    EXPECT_EQ(got.d_qkv, want.d_qkv) << threads;
  }
}

TEST_F(AmxAttention, WeighsEqualScoresEquallyHoweverLarge) {
  expect_equal_weights_of_large_scores(emulated());
}

TEST_F(AmxAttention, CanDropEverything) {
  const Batch batch{{5, 40}, {}, 32};
  Dropout dropout = make_dropout(0.5);
  dropout.threshold = 65536;
  const auto got = run(emulated(), batch, make_examples(batch.lengths), dropout);
  for (const bf16 x : got.context) ASSERT_EQ(as_double(x), 0.0);
}

TEST_F(AmxAttention, HasTheBitsOfTheEmulator) {
  if (!cpu_supports(Isa::kAmx)) GTEST_SKIP() << "this CPU has no amx";
  const Ops<bf16> hardware = make_ops<bf16>(Isa::kAmx);
  for (const Batch& batch : batches()) {
    SCOPED_TRACE(batch.head_size);
    const Examples e = make_examples(batch.lengths, 100);
    for (const double p : {0.0, 0.1}) {
      const auto got = run(hardware, batch, e, make_dropout(p));
      const auto want = run(emulated(), batch, e, make_dropout(p));
      EXPECT_EQ(got.context, want.context);
      EXPECT_EQ(got.lse, want.lse);
      EXPECT_EQ(got.d_qkv, want.d_qkv);
    }
  }
}

}  // namespace
}  // namespace tilewright::kernels::testing
