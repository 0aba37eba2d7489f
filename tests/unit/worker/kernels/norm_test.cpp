// Compares layer norm, residual, embedding and dropout with double precision, and tests the
// exactness rules.
#include <algorithm>
#include <tuple>

#include "tests/unit/worker/kernels/kernel_cases.h"
#include "worker/kernels/dropout/dropout.h"
#include "worker/runtime/memory.h"

namespace tilewright::kernels::testing {
namespace {

// Layer norm of one row in double precision.
struct DoubleNorm {
  std::vector<double> x_hat;
  double mean = 0;
  double rstd = 0;
};

DoubleNorm norm_of(const std::vector<double>& x, double epsilon) {
  DoubleNorm n;
  const double H = static_cast<double>(x.size());
  for (const double v : x) n.mean += v / H;
  double variance = 0;
  for (const double v : x) variance += (v - n.mean) * (v - n.mean) / H;
  n.rstd = 1 / std::sqrt(variance + epsilon);
  for (const double v : x) n.x_hat.push_back((v - n.mean) * n.rstd);
  return n;
}

double dropout_factor(const Dropout& dropout, const Examples& e, std::int64_t row,
                      std::int64_t column) {
  if (dropout.threshold == 0) return 1;
  std::vector<std::uint64_t> masks(static_cast<std::size_t>(column / 64 + 1));
  dropout_masks_ref(make_dropout_stream(dropout), e.row_example[row], e.row_position[row], 0,
                    column + 1, masks.data());
  return (masks[column / 64] >> column % 64 & 1) != 0 ? dropout.scale : 0.0;
}

struct NormInputs {
  Examples examples;
  std::int64_t H;
  std::vector<float> gamma, beta, residual;
  LayerNorm norm() const { return {gamma.data(), beta.data(), 1e-5f}; }
  std::size_t count() const { return static_cast<std::size_t>(examples.tokens() * H); }
};

NormInputs make_inputs(const std::vector<std::int32_t>& lengths, std::int64_t H) {
  NormInputs in{
      make_examples(lengths, 5), H, random_vector<float>(H, 1), random_vector<float>(H, 2), {}};
  in.residual = random_vector<float>(in.count(), 3, 2.0f);
  return in;
}

template <typename Activation>
struct Outputs {
  std::vector<float> sum, stats;
  std::vector<Activation> y;
};

template <typename Activation>
Outputs<Activation> add_norm(const Ops<Activation>& ops, const NormInputs& in,
                             const std::vector<Activation>& x, Dropout dropout, int threads,
                             std::int64_t begin, std::int64_t end) {
  const auto n = static_cast<std::size_t>((end - begin) * in.H);
  Outputs<Activation> out{std::vector<float>(n), std::vector<float>(2 * (end - begin)),
                          std::vector<Activation>(n)};
  ThreadPool pool(threads);
  ops.add_norm_forward(pool, x.data() + begin * in.H,
                       {in.residual.data() + begin * in.H, nullptr, {}}, end - begin, in.H,
                       in.norm(), dropout, in.examples.identity(begin), out.sum.data(),
                       out.stats.data(), out.y.data());
  return out;
}

using NormTest = KernelTest;

TEST_P(NormTest, AddNormForwardAgreesWithDoublePrecision) {
  with_type([&]<typename Activation>(Activation) {
    for (const std::int64_t H : {8, 20, 128, 384, 770}) {
      const NormInputs in = make_inputs({3, 1, 0, 5}, H);
      const auto x = random_vector<Activation>(in.count(), 4);
      for (const double p : {0.0, 0.1}) {
        const Dropout dropout = make_dropout(p);
        const std::int64_t rows = in.examples.tokens();
        const auto out = add_norm<Activation>(ops<Activation>(), in, x, dropout, 2, 0, rows);
        std::vector<double> sum, stats, y;
        for (std::int64_t t = 0; t < rows; ++t) {
          std::vector<double> row;
          for (std::int64_t h = 0; h < H; ++h) {
            row.push_back(in.residual[t * H + h] +
                          as_double(x[t * H + h]) * dropout_factor(dropout, in.examples, t, h));
          }
          sum.insert(sum.end(), row.begin(), row.end());
          const DoubleNorm n = norm_of(row, 1e-5);
          stats.push_back(n.mean);
          stats.push_back(n.rstd);
          for (std::int64_t h = 0; h < H; ++h) y.push_back(n.x_hat[h] * in.gamma[h] + in.beta[h]);
        }
        // A few rounding errors of values up to about 10, with standard deviations near 2.
        const double slack = 16 * kRoundoff<float>;
        expect_close(out.sum, sum, 2 * kRoundoff<float>, slack, "sum");
        expect_close(out.stats, stats, 8 * kRoundoff<float>, slack, "stats");
        expect_close(out.y, y, kRoundoff<Activation> + 8 * kRoundoff<float>, 2 * slack, "y");
      }
    }
  });
}

TEST_P(NormTest, AddNormBitsDependOnlyOnTheRow) {
  with_type([&]<typename Activation>(Activation) {
    const NormInputs in = make_inputs({30, 1, 0, 51}, 200);
    const auto x = random_vector<Activation>(in.count(), 4);
    const Dropout dropout = make_dropout(0.1);
    const std::int64_t rows = in.examples.tokens();
    const auto whole = add_norm<Activation>(ops<Activation>(), in, x, dropout, 1, 0, rows);
    for (int threads = 2; threads <= 4; ++threads) {
      EXPECT_EQ(add_norm<Activation>(ops<Activation>(), in, x, dropout, threads, 0, rows).y,
                whole.y);
    }
    for (const std::int64_t cut : {0, 1, 7, 30, 81, 82}) {
      auto first = add_norm<Activation>(ops<Activation>(), in, x, dropout, 2, 0, cut);
      const auto second = add_norm<Activation>(ops<Activation>(), in, x, dropout, 1, cut, rows);
      first.sum.insert(first.sum.end(), second.sum.begin(), second.sum.end());
      first.y.insert(first.y.end(), second.y.begin(), second.y.end());
      first.stats.insert(first.stats.end(), second.stats.begin(), second.stats.end());
      EXPECT_EQ(first.sum, whole.sum) << cut;
      EXPECT_EQ(first.y, whole.y) << cut;
      EXPECT_EQ(first.stats, whole.stats) << cut;
    }
  });
}

TEST_P(NormTest, EmbedNormForwardAddsThreeRowsAndDropsOutTheNorm) {
  with_type([&]<typename Activation>(Activation) {
    const std::int64_t H = 72;
    const NormInputs in = make_inputs({4, 2, 9}, H);
    const std::int64_t rows = in.examples.tokens();
    const auto word = random_vector<float>(50 * H, 6);
    const auto position = random_vector<float>(16 * H, 7);
    const auto type = random_vector<float>(2 * H, 8);
    std::vector<std::int32_t> ids(rows), types(rows);
    for (std::int64_t t = 0; t < rows; ++t) {
      ids[t] = static_cast<std::int32_t>(t * 13 % 50);
      types[t] = static_cast<std::int32_t>(t % 2);
    }
    const Dropout dropout = make_dropout(0.25);
    std::vector<float> sum(in.count()), stats(2 * rows), y32(in.count());
    std::vector<Activation> y(in.count());
    ThreadPool pool(2);
    ops<Activation>().embed_norm_forward(pool, ids.data(), in.examples.row_position.data(),
                                         types.data(), word.data(), position.data(), type.data(),
                                         rows, H, in.norm(), dropout, in.examples.identity(),
                                         sum.data(), stats.data(), y32.data(), y.data());
    std::vector<double> want_sum, want_y;
    for (std::int64_t t = 0; t < rows; ++t) {
      std::vector<double> row;
      for (std::int64_t h = 0; h < H; ++h) {
        row.push_back(static_cast<double>(word[ids[t] * H + h]) +
                      position[in.examples.row_position[t] * H + h] + type[types[t] * H + h]);
      }
      want_sum.insert(want_sum.end(), row.begin(), row.end());
      const DoubleNorm n = norm_of(row, 1e-5);
      for (std::int64_t h = 0; h < H; ++h) {
        want_y.push_back((n.x_hat[h] * in.gamma[h] + in.beta[h]) *
                         dropout_factor(dropout, in.examples, t, h));
      }
    }
    const double slack = 32 * kRoundoff<float>;
    expect_close(sum, want_sum, 2 * kRoundoff<float>, slack, "sum");
    expect_close(y32, want_y, 8 * kRoundoff<float>, slack, "y32");
    expect_close(y, want_y, kRoundoff<Activation> + 8 * kRoundoff<float>, slack, "y");
  });
}

TEST_P(NormTest, AddNormForwardRecomputesTheNormOfItsResidual) {
  with_type([&]<typename Activation>(Activation) {
    const std::int64_t H = 72;
    const NormInputs in = make_inputs({4, 2, 9}, H);
    const std::int64_t rows = in.examples.tokens();
    const auto word = random_vector<float>(50 * H, 6);
    const std::vector<float> zeros(16 * H, 0.0f);
    const std::vector<std::int32_t> ids(rows, 7);
    std::vector<float> sum(in.count()), stats(2 * rows), y32(in.count());
    std::vector<Activation> y(in.count());
    ThreadPool pool(2);
    ops<Activation>().embed_norm_forward(pool, ids.data(), in.examples.row_position.data(), nullptr,
                                         word.data(), zeros.data(), nullptr, rows, H, in.norm(), {},
                                         in.examples.identity(), sum.data(), stats.data(),
                                         y32.data(), y.data());
    for (std::size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(y[i], runtime::from_float<Activation>(y32[i])) << "y is not y32 rounded";
    }
    const auto x = random_vector<Activation>(in.count(), 4);
    for (const double p : {0.0, 0.1}) {
      const auto run = [&](const Residual& residual) {
        std::vector<float> out_sum(in.count()), out_stats(2 * rows);
        std::vector<Activation> out(in.count());
        ops<Activation>().add_norm_forward(pool, x.data(), residual, rows, H, in.norm(),
                                           make_dropout(p), in.examples.identity(), out_sum.data(),
                                           out_stats.data(), out.data());
        return std::tuple(out_sum, out_stats, out);
      };
      EXPECT_EQ(run({sum.data(), stats.data(), in.norm()}), run({y32.data(), nullptr, {}})) << p;
    }
  });
}

TEST_P(NormTest, EmbedNormForwardWithoutTypesEqualsATableOfZeros) {
  with_type([&]<typename Activation>(Activation) {
    const std::int64_t H = 72;
    const NormInputs in = make_inputs({4, 2, 9}, H);
    const std::int64_t rows = in.examples.tokens();
    const auto word = random_vector<float>(50 * H, 6);
    const auto position = random_vector<float>(16 * H, 7);
    const std::vector<float> zeros(2 * H, 0.0f);
    std::vector<std::int32_t> ids(rows), types(rows, 1);
    for (std::int64_t t = 0; t < rows; ++t) ids[t] = static_cast<std::int32_t>(t * 13 % 50);
    const auto run = [&](const float* type) {
      std::vector<float> sum(in.count()), stats(2 * rows), y32(in.count());
      std::vector<Activation> y(in.count());
      ThreadPool pool(2);
      ops<Activation>().embed_norm_forward(pool, ids.data(), in.examples.row_position.data(),
                                           types.data(), word.data(), position.data(), type, rows,
                                           H, in.norm(), make_dropout(0.25), in.examples.identity(),
                                           sum.data(), stats.data(), y32.data(), y.data());
      return std::tuple(sum, stats, y32);
    };
    EXPECT_EQ(run(nullptr), run(zeros.data()));
  });
}

template <typename Activation>
struct Backward {
  std::vector<float> d_sum, gamma, beta;
  std::vector<Activation> dx;
  friend bool operator==(const Backward&, const Backward&) = default;
};

// Of the rows of `shards`; the other rows of d_sum are those of dy.
template <typename Activation>
Backward<Activation> add_norm_backward(const Ops<Activation>& ops, int threads,
                                       const NormInputs& in, const Dropout& dropout,
                                       const std::vector<float>& dy, const Activation* branch,
                                       const Outputs<Activation>& out,
                                       const std::vector<std::int32_t>& shards) {
  const auto H = static_cast<std::size_t>(in.H);
  Backward<Activation> back{dy, std::vector<float>(H, NAN), std::vector<float>(H, NAN),
                            std::vector<Activation>(in.count())};
  runtime::Buffer<std::byte> scratch(ops.add_norm_backward_scratch(
      in.examples.tokens(), static_cast<std::int64_t>(shards.size()) - 1, in.H));
  ThreadPool pool(threads);
  ops.add_norm_backward(pool, back.d_sum.data(), branch, out.sum.data(), out.stats.data(), shards,
                        in.H, in.norm(), dropout, in.examples.identity(), back.dx.data(),
                        back.gamma.data(), back.beta.data(), scratch.data());
  return back;
}

// Sum over the outputs of y * dy as a function of the row, in double precision.
double objective(const std::vector<double>& row, const NormInputs& in,
                 const std::vector<double>& dy) {
  const DoubleNorm n = norm_of(row, 1e-5);
  double total = 0;
  for (std::int64_t h = 0; h < in.H; ++h) {
    total += (n.x_hat[h] * in.gamma[h] + in.beta[h]) * dy[h];
  }
  return total;
}

TEST_P(NormTest, AddNormBackwardAgreesWithNumericDifferentiation) {
  with_type([&]<typename Activation>(Activation) {
    for (const std::int64_t H : {16, 40, 130}) {
      const NormInputs in = make_inputs({2, 3}, H);
      const std::int64_t rows = in.examples.tokens();
      ASSERT_EQ(rows, 5);
      const auto x = random_vector<Activation>(in.count(), 4);
      const Dropout dropout = make_dropout(0.1);
      const auto out = add_norm<Activation>(ops<Activation>(), in, x, dropout, 1, 0, rows);
      const auto dy32 = random_vector<float>(in.count(), 5);
      const auto branch = random_vector<Activation>(in.count(), 6);
      for (const bool with_branch : {false, true}) {
        const Backward<Activation> back =
            add_norm_backward<Activation>(ops<Activation>(), 3, in, dropout, dy32,
                                          with_branch ? branch.data() : nullptr, out, {{0, 5}});
        std::vector<double> want_sum, want_dx;
        for (std::int64_t t = 0; t < rows; ++t) {
          const std::vector<double> row(out.sum.begin() + t * H, out.sum.begin() + (t + 1) * H);
          std::vector<double> d(H);
          for (std::int64_t h = 0; h < H; ++h) {
            d[h] = dy32[t * H + h] + (with_branch ? as_double(branch[t * H + h]) : 0.0);
          }
          for (std::int64_t h = 0; h < H; ++h) {
            const double step = 1e-5;
            auto up = row;
            auto down = row;
            up[h] += step;
            down[h] -= step;
            const double g = (objective(up, in, d) - objective(down, in, d)) / (2 * step);
            want_sum.push_back(g);
            want_dx.push_back(g * dropout_factor(dropout, in.examples, t, h));
          }
        }
        const double slack = 64 * kRoundoff<float>;
        expect_close(back.d_sum, want_sum, 16 * kRoundoff<float>, slack, "d_sum");
        expect_close(back.dx, want_dx, kRoundoff<Activation> + 16 * kRoundoff<float>, slack, "dx");
      }
    }
  });
}

TEST_P(NormTest, DropoutBackwardAppliesTheMaskInPlace) {
  with_type([&]<typename Activation>(Activation) {
    const NormInputs in = make_inputs({4, 3}, 100);
    const Dropout dropout = make_dropout(0.3);
    auto dy = random_vector<float>(in.count(), 5);
    const auto before = dy;
    const auto branch = random_vector<Activation>(in.count(), 6);
    ThreadPool pool(2);
    ops<Activation>().dropout_backward(pool, dy.data(), branch.data(), in.examples.tokens(), in.H,
                                       dropout, in.examples.identity());
    std::vector<double> want;
    for (std::size_t i = 0; i < dy.size(); ++i) {
      const auto column = static_cast<std::int64_t>(i) % in.H;
      want.push_back(
          (before[i] + as_double(branch[i])) *
          dropout_factor(dropout, in.examples, static_cast<std::int64_t>(i) / in.H, column));
    }
    expect_close(dy, want, 4 * kRoundoff<float>, 0, "dy");
  });
}

TEST_P(NormTest, ParameterGradientsFollowTheShardTree) {
  with_type([&]<typename Activation>(Activation) {
    for (const std::int64_t H : {24, 300, 768}) {
      const NormInputs in = make_inputs({9, 1, 0, 90, 33}, H);
      const std::int64_t rows = in.examples.tokens();
      const auto x = random_vector<Activation>(in.count(), 4);
      const auto out = add_norm<Activation>(ops<Activation>(), in, x, make_dropout(0), 1, 0, rows);
      const auto dy = random_vector<float>(in.count(), 5);
      // Shards 2, 3 and 7 are empty; the fifth has several blocks of rows.
      const std::vector<std::int32_t> shards = {0, 9, 10, 10, 10, 99, 115, 133, 133};
      const auto run = [&](int threads, const std::vector<std::int32_t>& of) {
        return add_norm_backward<Activation>(ops<Activation>(), threads, in, make_dropout(0.1), dy,
                                             x.data(), out, of);
      };
      const auto g = run(1, shards);
      std::vector<double> gamma(H), beta(H);
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t h = 0; h < H; ++h) {
          const double x_hat =
              (out.sum[t * H + h] - static_cast<double>(out.stats[2 * t])) * out.stats[2 * t + 1];
          const double d = dy[t * H + h] + as_double(x[t * H + h]);
          gamma[h] += d * x_hat;
          beta[h] += d;
        }
      }
      const double slack = static_cast<double>(rows) * 8 * kRoundoff<float>;
      expect_close(g.gamma, gamma, 0, slack, "d_gamma");
      expect_close(g.beta, beta, 0, slack, "d_beta");
      for (int threads = 2; threads <= 4; ++threads) {
        EXPECT_TRUE(run(threads, shards) == g) << threads;
      }
      // Subtrees of four shards, and single shards, added in the order of the tree.
      const auto sub = [&](std::size_t first, std::size_t count) {
        const auto begin = shards.begin() + static_cast<std::ptrdiff_t>(first);
        auto part = run(2, {begin, begin + static_cast<std::ptrdiff_t>(count) + 1});
        for (std::int64_t i = shards[first] * H; i < shards[first + count] * H; ++i) {
          EXPECT_EQ(part.d_sum[i], g.d_sum[i]);
          EXPECT_EQ(part.dx[i], g.dx[i]);
        }
        return std::pair(part.gamma, part.beta);
      };
      using Gradients = std::pair<std::vector<float>, std::vector<float>>;
      const auto plus = [](Gradients a, const Gradients& b) {
        for (std::size_t i = 0; i < a.first.size(); ++i) a.first[i] += b.first[i];
        for (std::size_t i = 0; i < a.second.size(); ++i) a.second[i] += b.second[i];
        return a;
      };
      const Gradients whole(g.gamma, g.beta);
      EXPECT_TRUE(plus(sub(0, 4), sub(4, 4)) == whole);
      EXPECT_TRUE(plus(plus(plus(sub(0, 1), sub(1, 1)), plus(sub(2, 1), sub(3, 1))),
                       plus(plus(sub(4, 1), sub(5, 1)), plus(sub(6, 1), sub(7, 1)))) == whole);
      const auto empty = sub(2, 2);
      EXPECT_EQ(empty.first, std::vector<float>(H, 0.0f));
      EXPECT_EQ(empty.second, std::vector<float>(H, 0.0f));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Isas, NormTest, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace tilewright::kernels::testing
