// Tests AdamW, the gradient norm and the embedding gradients on every instruction set.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "tests/unit/worker/kernels/kernel_cases.h"

namespace tilewright::kernels::testing {
namespace {

class ParametersTest : public IsaTest {
 protected:
  ParameterOps ops() const { return make_parameter_ops(GetParam()); }
};

AdamW make_adamw(int step) {
  AdamW a;
  a.learning_rate = 1e-3f;
  a.weight_decay = 0.01f;
  a.correction1 = static_cast<float>(1 - std::pow(static_cast<double>(a.beta1), step));
  a.correction2 = static_cast<float>(1 - std::pow(static_cast<double>(a.beta2), step));
  a.gradient_scale = 0.25f;
  return a;
}

TEST_P(ParametersTest, AdamwFollowsItsFormulaInDoublePrecision) {
  for (const std::int64_t count : {1, 15, 16, 77, 1000}) {
    auto p = random_vector<float>(count, 1);
    std::vector<float> m(count), v(count);
    std::vector<double> dp(p.begin(), p.end()), dm(count), dv(count);
    for (int step = 1; step <= 5; ++step) {
      // The fourth step has no gradient.
      auto g = random_vector<float>(count, 10 + step, 0.01f);
      if (step == 4) std::fill(g.begin(), g.end(), 0.0f);
      const AdamW a = make_adamw(step);
      ops().adamw(a, count, step == 4 ? nullptr : g.data(), p.data(), m.data(), v.data());
      const double beta1 = a.beta1;
      const double beta2 = a.beta2;
      for (std::int64_t i = 0; i < count; ++i) {
        const double gradient = g[i] * 0.25;
        dm[i] = beta1 * dm[i] + (1 - beta1) * gradient;
        dv[i] = beta2 * dv[i] + (1 - beta2) * gradient * gradient;
        dp[i] -= 1e-3 * 0.01 * dp[i];
        dp[i] -= 1e-3 * (dm[i] / a.correction1) / (std::sqrt(dv[i] / a.correction2) + 1e-8);
      }
    }
    expect_close(m, dm, 64 * kRoundoff<float>, 1e-9, "m");
    expect_close(v, dv, 64 * kRoundoff<float>, 1e-12, "v");
    expect_close(p, dp, 8 * kRoundoff<float>, 5e-3 * 256 * kRoundoff<float>, "p");
  }
}

TEST_P(ParametersTest, AdamwWithoutGradientEqualsZeroGradient) {
  const std::int64_t count = 203;
  auto p = random_vector<float>(count, 1);
  auto m = random_vector<float>(count, 2, 0.01f);
  auto v = m;
  for (float& x : v) x *= x;
  auto p2 = p, m2 = m, v2 = v;
  const std::vector<float> zeros(count);
  ops().adamw(make_adamw(9), count, nullptr, p.data(), m.data(), v.data());
  ops().adamw(make_adamw(9), count, zeros.data(), p2.data(), m2.data(), v2.data());
  EXPECT_EQ(p, p2);
  EXPECT_EQ(m, m2);
  EXPECT_EQ(v, v2);
}

// The optimizer leaves out such rows.
TEST_P(ParametersTest, AdamwWithoutGradientMomentsAndDecayChangesNoBit) {
  const std::int64_t count = 203;
  auto p = random_vector<float>(count, 1);
  p[3] = 0.0f;
  p[5] = -0.0f;
  p[202] = -0.0f;
  auto p2 = p;
  std::vector<float> m(count), v(count), zeros(count);
  AdamW a = make_adamw(9);
  a.weight_decay = 0;
  ops().adamw(a, count, nullptr, p2.data(), m.data(), v.data());
  const auto bits = [](const std::vector<float>& values) {
    std::vector<std::uint32_t> words(values.size());
    std::ranges::transform(values, words.begin(),
                           [](float x) { return std::bit_cast<std::uint32_t>(x); });
    return words;
  };
  EXPECT_EQ(bits(p2), bits(p));
  EXPECT_EQ(bits(m), bits(zeros));
  EXPECT_EQ(bits(v), bits(zeros));
}

TEST_P(ParametersTest, AdamwBitsDoNotDependOnTheSplit) {
  const std::int64_t count = 203;
  const auto g = random_vector<float>(count, 3);
  auto p = random_vector<float>(count, 1);
  auto p2 = p;
  std::vector<float> m(count), v(count), m2(count), v2(count);
  ops().adamw(make_adamw(1), count, g.data(), p.data(), m.data(), v.data());
  for (std::int64_t begin = 0; begin < count; begin += 37) {
    ops().adamw(make_adamw(1), std::min<std::int64_t>(37, count - begin), g.data() + begin,
                p2.data() + begin, m2.data() + begin, v2.data() + begin);
  }
  EXPECT_EQ(p, p2);
  EXPECT_EQ(m, m2);
  EXPECT_EQ(v, v2);
}

TEST_P(ParametersTest, SumOfSquaresMatchesTheReferenceBitForBit) {
  for (const std::int64_t count : {0, 1, 15, 16, 17, 1000, 4096}) {
    const auto x = random_vector<float>(count, 5, 3.0f);
    double want = 0;
    for (const float value : x) want += static_cast<double>(value) * value;
    const double got = ops().sum_of_squares(x.data(), count);
    EXPECT_NEAR(got, want, 1e-12 * want);
    EXPECT_EQ(got, make_parameter_ops(Isa::kRef).sum_of_squares(x.data(), count));
  }
}

TEST_P(ParametersTest, CopyKeepsEveryBitAndWritesNothingElse) {
  for (const std::int64_t count : {0, 1, 15, 16, 17, 31, 64, 1000}) {
    for (const std::int64_t offset : {0, 1, 5}) {  // of the source: it may have any alignment
      std::vector<std::uint32_t> from(static_cast<std::size_t>(count + offset));
      // -0, a signalling NaN, infinity, a denormal number, 1.
      constexpr std::uint32_t kBits[] = {0x80000000u, 0x7fa00001u, 0xff800000u, 1, 0x3f800000u};
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = kBits[i % std::size(kBits)];
      constexpr std::uint32_t kGuard = 0x55555555u;
      alignas(64) std::uint32_t to[1024];
      std::ranges::fill(to, kGuard);
      ops().copy(reinterpret_cast<const float*>(from.data()) + offset, count,
                 reinterpret_cast<float*>(to));
      EXPECT_TRUE(std::equal(from.begin() + offset, from.end(), to)) << count << " " << offset;
      EXPECT_TRUE(
          std::all_of(to + count, std::end(to), [](std::uint32_t x) { return x == kGuard; }))
          << count << " " << offset;
    }
  }
}

// For each of the `distinct` ids, its token rows in [begin, end).
struct Occurrences {
  std::vector<std::int32_t> rows, offsets = {0};
};

Occurrences occurrences_of(const std::vector<std::int32_t>& ids, const std::vector<int>& distinct,
                           std::int32_t begin, std::int32_t end) {
  Occurrences o;
  for (const int id : distinct) {
    for (std::int32_t t = begin; t < end; ++t) {
      if (ids[t] == id) o.rows.push_back(t);
    }
    o.offsets.push_back(static_cast<std::int32_t>(o.rows.size()));
  }
  return o;
}

TEST_P(ParametersTest, EmbeddingGradientsFollowTheShardTree) {
  for (const std::int64_t H : {24, 300, 768}) {
    const std::vector<std::int32_t> shards = {0, 9, 10, 10, 10, 29, 45, 63, 63};
    std::vector<std::int32_t> ids(63);
    for (std::int32_t t = 0; t < 63; ++t) ids[t] = t % 3 == 0 ? 7 : t * t % 40;
    std::vector<int> distinct(41);  // 40 does not occur
    std::iota(distinct.begin(), distinct.end(), 0);
    const auto d_sum = random_vector<float>(63 * H, 1);
    const auto run = [&](int threads, std::size_t first, std::size_t count) {
      const Occurrences o = occurrences_of(ids, distinct, shards[first], shards[first + count]);
      EmbeddingBackward e;
      e.d_sum = d_sum.data();
      e.occurrences = o.rows.data();
      e.row_offsets = o.offsets.data();
      e.R = static_cast<std::int64_t>(distinct.size());
      e.H = H;
      e.shards = Shards(shards).subspan(first, count + 1);
      std::vector<float> grad(distinct.size() * H, NAN);
      e.grad = grad.data();
      ThreadPool pool(threads);
      ops().embedding_backward(pool, e);
      return grad;
    };
    const auto whole = run(1, 0, 8);
    std::vector<double> want(whole.size());
    for (std::int64_t t = 0; t < 63; ++t) {
      for (std::int64_t h = 0; h < H; ++h) want[ids[t] * H + h] += d_sum[t * H + h];
    }
    expect_close(whole, want, 0, 63 * 4 * kRoundoff<float>, "grad");
    for (int threads = 2; threads <= 4; ++threads) EXPECT_EQ(run(threads, 0, 8), whole);
    const auto plus = [](std::vector<float> a, const std::vector<float>& b) {
      for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
      return a;
    };
    EXPECT_EQ(plus(run(2, 0, 4), run(1, 4, 4)), whole);
    EXPECT_EQ(plus(plus(plus(run(1, 0, 1), run(1, 1, 1)), run(1, 2, 2)),
                   plus(run(1, 4, 2), plus(run(1, 6, 1), run(1, 7, 1)))),
              whole);
    EXPECT_EQ(run(1, 2, 2), std::vector<float>(whole.size(), 0.0f));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ParametersTest, ::testing::ValuesIn(runtime::kAllIsas), isa_name);

}  // namespace
}  // namespace tilewright::kernels::testing
