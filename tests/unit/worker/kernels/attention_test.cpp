#include "tests/unit/worker/kernels/attention_cases.h"
#include "tests/unit/worker/lengths.h"
#include "worker/kernels/attention_plan.h"

namespace tilewright::kernels::testing {
namespace {

using AttentionTest = KernelTest;

TEST_P(AttentionTest, AgreesWithDoublePrecision) {
  with_type([&]<typename Activation>(Activation) {
    for (const Shape& shape :
         {Shape{{3, 1, 0, 17}, 2, 8}, Shape{{70, 33}, 3, 32}, Shape{{131, 64, 2}, 2, 64},
          Shape{{48, 100}, 1, 40}, Shape{{131, 33}, 1, 136}, Shape{{53, 17}, 3, 26},
          Shape{{1, 35}, 2, 2}, Shape{{70}, 2, 66}}) {
      const Examples e = make_examples(shape.lengths, 100);
      const std::int64_t width = shape.heads * shape.head_size;
      const auto qkv = random_vector<Activation>(3 * e.tokens() * width, 1);
      const auto d_context = random_vector<Activation>(e.tokens() * width, 2);
      for (const double p : {0.0, 0.1}) {
        const Dropout dropout = make_dropout(p);
        const auto got =
            run_attention<Activation>(ops<Activation>(), 2, e, shape.heads, shape.head_size,
                                      qkv.data(), d_context.data(), dropout);
        const auto want = attention_in_double(e, shape.heads, shape.head_size, doubles(qkv),
                                              doubles(d_context), dropout);
        expect_sums(got.context, want.context, want.context_terms, "context");
        expect_close(got.lse, want.lse, 4 * kRoundoff<float>, 64 * kRoundoff<float>, "lse");
        expect_sums(got.d_qkv, want.d_qkv, want.d_qkv_terms, "d_qkv");
      }
    }
  });
}

// Scores with a standard deviation of 3: a query gives most of its weight to a few keys, so that
// the results show a key that is left out. All values are exact in bf16, so both types have the
// same results.
TEST(AttentionLengths, UpTo512AgreeWithDoublePrecision) {
  constexpr std::int64_t kHeadSize = 32;
  for (const std::int32_t length : tilewright::testing::covered_lengths()) {
    const Examples e = make_examples({length}, length);
    const auto qkv = random_vector<bf16>(3 * e.tokens() * kHeadSize, 1, 1.75f);
    const auto d_context = random_vector<bf16>(e.tokens() * kHeadSize, 2);
    const Dropout dropout = make_dropout(length % 2 == 0 ? 0.1 : 0.0);
    const auto want =
        attention_in_double(e, 1, kHeadSize, doubles(qkv), doubles(d_context), dropout);
    const auto check = [&]<typename Activation>(Isa isa, const std::vector<Activation>& in,
                                                const std::vector<Activation>& d_out) {
      SCOPED_TRACE(::testing::Message() << length << " tokens, " << runtime::name(isa)
                                        << (sizeof(Activation) == 2 ? " on bf16" : " on fp32"));
      const auto got = run_attention<Activation>(make_ops<Activation>(isa), 2, e, 1, kHeadSize,
                                                 in.data(), d_out.data(), dropout);
      expect_sums(got.context, want.context, want.context_terms, "context");
      expect_close(got.lse, want.lse, 4 * kRoundoff<float>, 64 * kRoundoff<float>, "lse");
      expect_sums(got.d_qkv, want.d_qkv, want.d_qkv_terms, "d_qkv");
    };
    const auto floats = [](const std::vector<bf16>& values) {
      std::vector<float> out;
      out.reserve(values.size());
      for (const bf16 value : values) out.push_back(runtime::to_float(value));
      return out;
    };
    for (const Isa isa : runtime::detect_cpu().isas) {
      check(isa, qkv, d_context);
      check(isa, floats(qkv), floats(d_context));
    }
  }
}

// Compares the reference's backward with numeric differentiation of its forward.
TEST(AttentionOracle, BackwardIsTheDerivativeOfForward) {
  const Examples e = make_examples({3, 1, 5});
  const std::int64_t A = 2;
  const std::int64_t D = 8;
  Doubles qkv = doubles(random_vector<float>(3 * e.tokens() * A * D, 3));
  const Doubles d = doubles(random_vector<float>(e.tokens() * A * D, 4));
  const Dropout dropout = make_dropout(0.2);
  const auto objective = [&] {
    const auto out = attention_in_double(e, A, D, qkv, d, dropout);
    return std::inner_product(d.begin(), d.end(), out.context.begin(), 0.0);
  };
  const auto want = attention_in_double(e, A, D, qkv, d, dropout);
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    const double before = qkv[i];
    qkv[i] = before + 1e-5;
    const double up = objective();
    qkv[i] = before - 1e-5;
    const double down = objective();
    qkv[i] = before;
    EXPECT_NEAR((up - down) / 2e-5, want.d_qkv[i], 1e-8) << i;
  }
}

TEST_P(AttentionTest, BitsDependOnlyOnTheExample) {
  with_type([&]<typename Activation>(Activation) {
    const std::int64_t A = 3;
    const std::int64_t D = 32;
    const std::int64_t width = A * D;
    const std::vector<std::int32_t> lengths = {45, 1, 0, 130, 16, 67};
    const Examples all = make_examples(lengths, 7);
    const auto qkv = random_vector<Activation>(3 * all.tokens() * width, 1);
    const auto d_context = random_vector<Activation>(all.tokens() * width, 2);
    const Dropout dropout = make_dropout(0.1);
    const auto whole = run_attention<Activation>(ops<Activation>(), 1, all, A, D, qkv.data(),
                                                 d_context.data(), dropout);
    for (int threads = 2; threads <= 4; ++threads) {
      const auto other = run_attention<Activation>(ops<Activation>(), threads, all, A, D,
                                                   qkv.data(), d_context.data(), dropout);
      EXPECT_EQ(other.context, whole.context) << threads;
      EXPECT_EQ(other.lse, whole.lse) << threads;
      EXPECT_EQ(other.d_qkv, whole.d_qkv) << threads;
    }
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      const Examples one = make_examples({lengths[b]}, 7 + static_cast<std::int32_t>(b));
      const std::int64_t first = all.cu_seqlens[b];
      const auto alone =
          run_attention<Activation>(ops<Activation>(), 2, one, A, D, qkv.data() + first * 3 * width,
                                    d_context.data() + first * width, dropout);
      const auto same = [&](const auto& part, const auto& of, std::int64_t columns) {
        return std::equal(part.begin(), part.end(), of.begin() + first * columns);
      };
      EXPECT_TRUE(same(alone.context, whole.context, width)) << b;
      EXPECT_EQ(alone.lse, lse_of(whole.lse, A, first, lengths[b])) << b;
      EXPECT_TRUE(same(alone.d_qkv, whole.d_qkv, 3 * width)) << b;
    }
  });
}

// With few heads forward is cut into blocks of queries.
TEST_P(AttentionTest, OfAFewHeadsHasTheSameBitsForAnyNumberOfThreads) {
  with_type([&]<typename Activation>(Activation) {
    const std::int64_t A = 2;
    const std::int64_t D = 64;
    const std::int64_t width = A * D;
    const Examples e = make_examples({260, 60});
    const std::vector<std::int32_t> attended = {201, 60};
    const auto qkv = random_vector<Activation>(3 * e.tokens() * width, 1);
    const auto d_context = random_vector<Activation>(e.tokens() * width, 2);
    const auto run = [&](int threads) {
      return run_attention<Activation>(ops<Activation>(), threads, e, A, D, qkv.data(),
                                       d_context.data(), make_dropout(0.1), attended.data());
    };
    const auto want = run(1);
    for (const int threads : {3, 5, 16}) {
      ASSERT_LT(cut_attention_forward({2, A, 260}, threads).queries, 260);
      const auto got = run(threads);
      EXPECT_EQ(got.context, want.context) << threads;
      EXPECT_EQ(got.lse, want.lse) << threads;
      EXPECT_EQ(got.d_qkv, want.d_qkv) << threads;
    }
  });
}

TEST_P(AttentionTest, GivesPaddingZeroWeightForAnyValues) {
  with_type([&]<typename Activation>(Activation) {
    const std::int64_t A = 2;
    const std::int64_t D = 32;
    const std::int64_t width = A * D;
    const std::vector<std::int32_t> lengths = {45, 1, 131, 15, 64};
    const std::int64_t padded = 161;  // two blocks of queries
    const Examples packed = make_examples(lengths, 7);
    const Examples filled = make_examples(std::vector<std::int32_t>(5, padded), 7);
    const auto qkv = random_vector<Activation>(3 * packed.tokens() * width, 1);
    const auto d_context = random_vector<Activation>(packed.tokens() * width, 2);
    // Keys and values of padding are much larger than the others and the rows of d_context for
    // padding are zero, so any weight given to padding would change the results.
    auto filled_qkv = random_vector<Activation>(3 * filled.tokens() * width, 3, 30.0f);
    std::vector<Activation> filled_d_context(filled.tokens() * width,
                                             runtime::from_float<Activation>(0.0f));
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      const auto from = packed.cu_seqlens[b];
      const auto to = filled.cu_seqlens[b];
      std::copy_n(qkv.begin() + from * 3 * width, lengths[b] * 3 * width,
                  filled_qkv.begin() + to * 3 * width);
      std::copy_n(d_context.begin() + from * width, lengths[b] * width,
                  filled_d_context.begin() + to * width);
    }
    for (const double p : {0.0, 0.1}) {
      const Dropout dropout = make_dropout(p);
      const auto want = run_attention<Activation>(ops<Activation>(), 2, packed, A, D, qkv.data(),
                                                  d_context.data(), dropout);
      const auto got =
          run_attention<Activation>(ops<Activation>(), 2, filled, A, D, filled_qkv.data(),
                                    filled_d_context.data(), dropout, lengths.data());
      for (std::size_t b = 0; b < lengths.size(); ++b) {
        const auto from = packed.cu_seqlens[b];
        const auto to = filled.cu_seqlens[b];
        const auto same = [&](const auto& part, const auto& of, std::int64_t columns) {
          return std::equal(of.begin() + from * columns, of.begin() + (from + lengths[b]) * columns,
                            part.begin() + to * columns);
        };
        EXPECT_TRUE(same(got.context, want.context, width)) << b;
        EXPECT_EQ(lse_of(got.lse, A, to, lengths[b]), lse_of(want.lse, A, from, lengths[b])) << b;
        EXPECT_TRUE(same(got.d_qkv, want.d_qkv, 3 * width)) << b;
        for (auto i = (to + lengths[b]) * 3 * width; i < (to + padded) * 3 * width; ++i) {
          ASSERT_EQ(as_double(got.d_qkv[i]), 0.0) << b;
        }
      }
    }
  });
}

TEST_P(AttentionTest, StaysFiniteForScoresBeyondTheRangeOfExp) {
  with_type([&]<typename Activation>(Activation) {
    const Examples e = make_examples({40, 9});
    const auto qkv = random_vector<Activation>(3 * e.tokens() * 64, 1, 100.0f);
    const auto d_context = random_vector<Activation>(e.tokens() * 64, 2);
    const auto got = run_attention<Activation>(ops<Activation>(), 1, e, 1, 64, qkv.data(),
                                               d_context.data(), make_dropout(0.1));
    const auto want =
        attention_in_double(e, 1, 64, doubles(qkv), doubles(d_context), make_dropout(0.1));
    // Scores reach 10^5, whose fp32 rounding errors are hundredths, so the test can only expect
    // finite results and the largest score in the log-sum-exp.
    for (const Activation x : got.context) ASSERT_TRUE(std::isfinite(as_double(x)));
    for (const Activation x : got.d_qkv) ASSERT_TRUE(std::isfinite(as_double(x)));
    expect_close(got.lse, want.lse, 64 * kRoundoff<float>, 0.1, "lse");
  });
}

TEST_P(AttentionTest, WeighsEqualScoresEquallyHoweverLarge) {
  with_type([&]<typename Activation>(Activation) {
    expect_equal_weights_of_large_scores(ops<Activation>());
  });
}

TEST_P(AttentionTest, CanDropEverything) {
  with_type([&]<typename Activation>(Activation) {
    const Examples e = make_examples({5, 40});
    Dropout dropout = make_dropout(0.5);
    dropout.threshold = 65536;
    const auto got = run_attention<Activation>(
        ops<Activation>(), 1, e, 1, 32, random_vector<Activation>(3 * e.tokens() * 32, 1).data(),
        random_vector<Activation>(e.tokens() * 32, 2).data(), dropout);
    for (const Activation x : got.context) ASSERT_EQ(as_double(x), 0.0);
    for (const Activation x : got.d_qkv) ASSERT_EQ(as_double(x), 0.0);
  });
}

// The gradients of a query's scores have the sum zero, whatever all keys have in common: here the
// last element, and in the values one that makes all dP large.
TEST_P(AttentionTest, OnFloatsHasScoreGradientsWhoseSumIsZero) {
  if (GetParam().is_bf16) return;
  constexpr std::int64_t kHeadSize = 64;
  constexpr float kCommon = 64;
  const Examples e = make_examples({128});
  auto qkv = random_vector<float>(3 * e.tokens() * kHeadSize, 1, 2.0f);
  std::vector<float> d_context(static_cast<std::size_t>(e.tokens() * kHeadSize));
  for (std::int64_t t = 0; t < e.tokens(); ++t) {
    float* const token = qkv.data() + t * 3 * kHeadSize;
    token[kHeadSize - 1] = 0;  // the keys' common element leaves the scores as they are
    token[2 * kHeadSize - 1] = kCommon;
    token[3 * kHeadSize - 1] = kCommon;
    d_context[static_cast<std::size_t>((t + 1) * kHeadSize - 1)] = 1;  // dP = kCommon
  }
  const auto got = run_attention<float>(ops<float>(), 1, e, 1, kHeadSize, qkv.data(),
                                        d_context.data(), make_dropout(0));
  // The exact dS is zero. sum P dP and the division by sum P are rounded.
  const double scale = 1 / std::sqrt(static_cast<double>(kHeadSize));
  for (std::int64_t t = 0; t < e.tokens(); ++t) {
    EXPECT_LE(std::abs(got.d_qkv[static_cast<std::size_t>(t * 3 * kHeadSize + kHeadSize - 1)]),
              4 * kRoundoff<float> * kCommon * kCommon * scale)
        << t;
  }
}

TEST_P(AttentionTest, ReturnsTheValueOfASingleToken) {
  with_type([&]<typename Activation>(Activation) {
    const Examples e = make_examples({1, 1});
    const auto qkv = random_vector<Activation>(3 * e.tokens() * 32, 1);
    const auto d_context = random_vector<Activation>(e.tokens() * 32, 2);
    const auto got = run_attention<Activation>(ops<Activation>(), 1, e, 1, 32, qkv.data(),
                                               d_context.data(), make_dropout(0));
    for (std::int64_t t = 0; t < 2; ++t) {
      for (std::int64_t d = 0; d < 32; ++d) {
        EXPECT_EQ(got.context[t * 32 + d], qkv[t * 96 + 64 + d]);
        EXPECT_EQ(got.d_qkv[t * 96 + 64 + d], d_context[t * 32 + d]);
        EXPECT_EQ(as_double(got.d_qkv[t * 96 + d]), 0.0);
        EXPECT_EQ(as_double(got.d_qkv[t * 96 + 32 + d]), 0.0);
      }
    }
  });
}

TEST_P(AttentionTest, AcceptsAnEmptyBatch) {
  with_type([&]<typename Activation>(Activation) {
    const Examples e = make_examples({});
    const auto got = run_attention<Activation>(ops<Activation>(), 2, e, 2, 32, nullptr, nullptr,
                                               make_dropout(0.1));
    EXPECT_TRUE(got.context.empty());
  });
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionTest, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace tilewright::kernels::testing
