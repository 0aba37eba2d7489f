// Compares GELU, tanh, ReLU, dropout and the losses with libm in double precision.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/unit/worker/kernels/kernel_cases.h"
#include "worker/kernels/dropout/dropout.h"

namespace tilewright::kernels::testing {
namespace {

// x Phi(x), and its derivative Phi(x) + x phi(x).
double double_gelu(double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double double_gelu_derivative(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0)) +
         x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
}

// Zero, and every float with magnitude from 2^-20 to `largest` whose low 12 bits are zero.
template <typename Activation>
std::vector<Activation> sweep(float largest) {
  std::vector<Activation> values = {runtime::from_float<Activation>(0.0f)};
  for (std::uint32_t bits = 0x35800000u; std::bit_cast<float>(bits) <= largest; bits += 0x1000u) {
    const float x = std::bit_cast<float>(bits);
    values.push_back(runtime::from_float<Activation>(x));
    values.push_back(runtime::from_float<Activation>(-x));
  }
  return values;
}

// Of the polynomials for bf16 (math.inl) before rounding, including the factor 1 + 2^-8 of the
// rounding: GELU relative, its derivative absolute.
constexpr double kGeluError = 0x1.57p-12;            // 2^-11.6
constexpr double kGeluDerivativeError = 0x1.29p-12;  // 2^-11.8

using PointwiseTest = KernelTest;

TEST_P(PointwiseTest, GeluAgreesWithDoublePrecisionToAFewUlps) {
  with_type([&]<typename Activation>(Activation) {
    ThreadPool pool(2);
    const auto x = sweep<Activation>(9.0f);
    std::vector<Activation> y(x.size());
    ops<Activation>().gelu_forward(pool, x.data(), static_cast<std::int64_t>(x.size()), y.data());
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double v = as_double(x[i]);
      const double want = double_gelu(v);
      // exp(-x^2 / 2) has the relative error of its rounded argument: 2^-24 x^2 / 2. For bf16 the
      // polynomials add 2^-11.6, a twelfth of the round-off, and below -5.5 at most 2^-34.
      constexpr bool kBf16 = std::is_same_v<Activation, bf16>;
      const double relative =
          kRoundoff<Activation> + (kBf16 ? kGeluError : (8 + v * v) * kRoundoff<float>);
      const double absolute = kBf16 && v < -5.5 ? 0x1p-34 : 0;
      ASSERT_LE(std::abs(as_double(y[i]) - want), relative * std::abs(want) + absolute) << v;
      if (std::abs(v) < 3) worst = std::max(worst, std::abs(as_double(y[i]) / want - 1));
    }
    RecordProperty("worst relative error below 3", std::to_string(worst / kRoundoff<float>));
  });
}

TEST_P(PointwiseTest, GeluBackwardAgreesWithDoublePrecision) {
  with_type([&]<typename Activation>(Activation) {
    ThreadPool pool(2);
    const auto x = sweep<Activation>(9.0f);
    const auto dy = random_vector<Activation>(x.size(), 3);
    std::vector<Activation> dx(x.size());
    const double error =
        std::is_same_v<Activation, bf16> ? kGeluDerivativeError : 8 * kRoundoff<float>;
    ops<Activation>().gelu_backward(pool, x.data(), dy.data(), static_cast<std::int64_t>(x.size()),
                                    dx.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double v = as_double(x[i]);
      const double want = as_double(dy[i]) * double_gelu_derivative(v);
      ASSERT_LE(std::abs(as_double(dx[i]) - want),
                kRoundoff<Activation> * std::abs(want) + error * std::abs(as_double(dy[i])))
          << v;
    }
  });
}

TEST_P(PointwiseTest, GeluOfLargeValuesIsTheInputOrZero) {
  with_type([&]<typename Activation>(Activation) {
    ThreadPool pool(1);
    std::vector<Activation> x, y(6), dx(6);
    for (const float v : {20.0f, -20.0f, 1e20f, -1e20f, 3e38f, -3e38f}) {
      x.push_back(runtime::from_float<Activation>(v));
    }
    const std::vector<Activation> dy(6, runtime::from_float<Activation>(1.0f));
    ops<Activation>().gelu_forward(pool, x.data(), 6, y.data());
    ops<Activation>().gelu_backward(pool, x.data(), dy.data(), 6, dx.data());
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(as_double(y[i]), i % 2 == 0 ? as_double(x[i]) : 0.0) << as_double(x[i]);
      EXPECT_EQ(as_double(dx[i]), i % 2 == 0 ? 1.0 : 0.0) << as_double(x[i]);
    }
  });
}

TEST_P(PointwiseTest, GeluPropagatesNan) {
  with_type([&]<typename Activation>(Activation) {
    ThreadPool pool(1);
    std::vector<Activation> x(40, runtime::from_float<Activation>(NAN)), y(40);
    ops<Activation>().gelu_forward(pool, x.data(), 40, y.data());
    for (const Activation v : y) EXPECT_TRUE(std::isnan(as_double(v)));
  });
}

TEST_P(PointwiseTest, GeluBitsDoNotDependOnPositionOrThreadCount) {
  with_type([&]<typename Activation>(Activation) {
    const auto x = random_vector<Activation>(40001, 1, 2.0f);
    const auto dy = random_vector<Activation>(40001, 2);
    const auto run = [&](std::int64_t begin, std::int64_t end, int threads) {
      ThreadPool pool(threads);
      std::vector<Activation> y(x.begin() + begin, x.begin() + end),
          dx(dy.begin() + begin, dy.begin() + end);
      ops<Activation>().gelu_backward(pool, x.data() + begin, dx.data(), end - begin, dx.data());
      ops<Activation>().gelu_forward(pool, y.data(), end - begin, y.data());  // in place
      y.insert(y.end(), dx.begin(), dx.end());
      return y;
    };
    const auto whole = run(0, 40001, 1);
    for (int threads = 2; threads <= 4; ++threads) EXPECT_EQ(run(0, 40001, threads), whole);
    const auto part = run(101, 20008, 2);
    EXPECT_TRUE(std::equal(part.begin(), part.begin() + 19907, whole.begin() + 101));
    EXPECT_TRUE(std::equal(part.begin() + 19907, part.end(), whole.begin() + 40001 + 101));
  });
}

TEST_P(PointwiseTest, TanhWithDropoutForwardAndBackward) {
  with_type([&]<typename Activation>(Activation) {
    const std::int64_t H = 200;
    const std::int64_t rows = 37;
    const auto x = random_vector<Activation>(rows * H, 1, 1.5f);
    const auto dy = random_vector<Activation>(rows * H, 2);
    std::vector<std::int32_t> example(rows), position(rows, 0);
    std::iota(example.begin(), example.end(), 50);
    for (const double p : {0.0, 0.1}) {
      const Dropout dropout = make_dropout(p);
      std::vector<Activation> activation(x.size()), y(x.size()), dx(x.size());
      ThreadPool pool(3);
      const RowIdentity identity = {example.data(), position.data()};
      ops<Activation>().tanh_dropout_forward(pool, x.data(), rows, H, dropout, identity,
                                             activation.data(), y.data());
      ops<Activation>().tanh_dropout_backward(pool, activation.data(), dy.data(), rows, H, dropout,
                                              identity, dx.data());
      std::vector<std::uint64_t> masks(4);
      for (std::int64_t t = 0; t < rows; ++t) {
        dropout_masks_ref(make_dropout_stream(dropout), example[t], 0, 0, H, masks.data());
        for (std::int64_t h = 0; h < H; ++h) {
          const std::int64_t i = t * H + h;
          const bool kept = p == 0 || (masks[h / 64] >> h % 64 & 1) != 0;
          const double factor = p == 0 ? 1.0 : kept ? dropout.scale : 0.0;
          const double a = as_double(activation[i]);
          const double want = std::tanh(as_double(x[i]));
          EXPECT_NEAR(a, want, (kRoundoff<Activation> + 6 * kRoundoff<float>)*std::abs(want));
          EXPECT_NEAR(as_double(y[i]), a * factor,
                      (kRoundoff<Activation> + kRoundoff<float>)*std::abs(a * factor));
          const double want_dx = as_double(dy[i]) * factor * (1 - a * a);
          EXPECT_NEAR(as_double(dx[i]), want_dx,
                      kRoundoff<Activation> * std::abs(want_dx) +
                          4 * kRoundoff<float> * std::abs(as_double(dy[i])));
        }
      }
    }
  });
}

TEST_P(PointwiseTest, TanhAgreesWithDoublePrecisionToAFewUlps) {
  with_type([&]<typename Activation>(Activation) {
    const auto x = sweep<Activation>(30.0f);
    const auto rows = static_cast<std::int64_t>(x.size()) / 16;
    std::vector<Activation> activation(rows * 16), y(rows * 16);
    ThreadPool pool(1);
    ops<Activation>().tanh_dropout_forward(pool, x.data(), rows, 16, {}, {}, activation.data(),
                                           y.data());
    for (std::size_t i = 0; i < activation.size(); ++i) {
      const double want = std::tanh(as_double(x[i]));
      ASSERT_NEAR(as_double(activation[i]), want,
                  (kRoundoff<Activation> + 6 * kRoundoff<float>)*std::abs(want))
          << as_double(x[i]);
    }
  });
}

TEST_P(PointwiseTest, ReluWithDropoutForwardAndBackwardIsExact) {
  with_type([&]<typename Activation>(Activation) {
    const std::int64_t H = 200;
    const std::int64_t rows = 37;
    auto x = random_vector<Activation>(rows * H, 1, 1.5f);
    for (std::size_t i = 0; i < x.size(); i += 7) x[i] = runtime::from_float<Activation>(0.0f);
    const auto dy = random_vector<Activation>(rows * H, 2);
    std::vector<std::int32_t> example(rows), position(rows, 0);
    std::iota(example.begin(), example.end(), 50);
    for (const double p : {0.0, 0.2}) {
      const Dropout dropout = make_dropout(p);
      const RowIdentity identity = {example.data(), position.data()};
      std::vector<std::uint64_t> masks(4);
      for (const int threads : {1, 3}) {
        ThreadPool pool(threads);
        std::vector<Activation> activation(x.size()), y(x.size()), dx = dy;
        ops<Activation>().relu_dropout_forward(pool, x.data(), rows, H, dropout, identity,
                                               activation.data(), y.data());
        ops<Activation>().relu_dropout_backward(pool, activation.data(), dx.data(), rows, H,
                                                dropout, identity, dx.data());
        for (std::int64_t t = 0; t < rows; ++t) {
          dropout_masks_ref(make_dropout_stream(dropout), example[t], 0, 0, H, masks.data());
          for (std::int64_t h = 0; h < H; ++h) {
            const std::int64_t i = t * H + h;
            const bool kept = p == 0 || (masks[h / 64] >> h % 64 & 1) != 0;
            const float factor = kept ? dropout.scale : 0.0f;
            const float a = std::max(runtime::to_float(x[i]), 0.0f);
            EXPECT_EQ(as_double(activation[i]), a);
            EXPECT_EQ(as_double(y[i]), as_double(runtime::from_float<Activation>(a * factor)));
            const float d = a > 0 ? runtime::to_float(dy[i]) * factor : 0.0f;
            EXPECT_EQ(as_double(dx[i]), as_double(runtime::from_float<Activation>(d)));
          }
        }
      }
    }
  });
}

TEST_P(PointwiseTest, ReluPropagatesNan) {
  with_type([&]<typename Activation>(Activation) {
    ThreadPool pool(1);
    const std::vector<Activation> x(40, runtime::from_float<Activation>(NAN));
    std::vector<Activation> activation(40), y(40);
    ops<Activation>().relu_dropout_forward(pool, x.data(), 1, 40, {}, {}, activation.data(),
                                           y.data());
    for (const Activation v : y) EXPECT_TRUE(std::isnan(as_double(v)));
  });
}

TEST_P(PointwiseTest, DropoutForwardScalesTheKeptElementsOfEachToken) {
  with_type([&]<typename Activation>(Activation) {
    const std::int64_t H = 200;
    const Examples examples = make_examples({5, 1, 17}, 40);
    const auto x = random_vector<Activation>(examples.tokens() * H, 1);
    const Dropout dropout = make_dropout(0.1);
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      std::vector<Activation> y = x;
      ops<Activation>().dropout_forward(pool, y.data(), examples.tokens(), H, dropout,
                                        examples.identity(), y.data());
      std::vector<std::uint64_t> masks(4);
      for (std::int64_t t = 0; t < examples.tokens(); ++t) {
        dropout_masks_ref(make_dropout_stream(dropout), examples.row_example[t],
                          examples.row_position[t], 0, H, masks.data());
        for (std::int64_t h = 0; h < H; ++h) {
          const bool kept = (masks[h / 64] >> h % 64 & 1) != 0;
          const float want = kept ? runtime::to_float(x[t * H + h]) * dropout.scale : 0.0f;
          EXPECT_EQ(as_double(y[t * H + h]), as_double(runtime::from_float<Activation>(want)));
        }
      }
    }
  });
}

TEST_P(PointwiseTest, SquaredErrorAgreesWithDoublePrecision) {
  with_type([&]<typename Activation>(Activation) {
    const auto logits = random_vector<Activation>(33, 1, 3.0f);
    const auto values = random_vector<float>(33, 2, 3.0f);
    std::vector<float> losses(33);
    std::vector<Activation> d(33);
    ops<Activation>().squared_error(logits.data(), values.data(), 33, 1.0f / 24, losses.data(),
                                    d.data());
    for (std::size_t b = 0; b < 33; ++b) {
      const double difference = as_double(logits[b]) - values[b];
      // The difference, its square and its product with the scale are rounded.
      EXPECT_NEAR(losses[b], difference * difference,
                  3 * kRoundoff<float> * difference * difference);
      EXPECT_NEAR(as_double(d[b]), 2 * difference / 24,
                  (kRoundoff<Activation> + 3 * kRoundoff<float>)*std::abs(2 * difference / 24));
    }
  });
}

TEST_P(PointwiseTest, SpanCrossEntropyAgreesWithDoublePrecisionAndIgnoresPadding) {
  with_type([&]<typename Activation>(Activation) {
    // Rows with padding, and the tokens among them.
    const std::vector<std::int32_t> cu_seqlens = {0, 1, 6, 20, 404};
    const std::vector<std::int32_t> lengths = {1, 5, 9, 384};
    const std::vector<std::int32_t> first = {0, 4, 2, 383};
    const std::vector<std::int32_t> last = {0, 0, 8, 1};
    const AnswerSpans spans = {cu_seqlens.data(), lengths.data(), first.data(), last.data(), 4};
    for (const float spread : {0.01f, 1.0f, 1000.0f}) {
      const auto logits = random_vector<Activation>(2 * 404, 1, spread);
      std::vector<float> losses(4);
      std::vector<Activation> d(2 * 404, runtime::from_float<Activation>(NAN));
      ops<Activation>().span_cross_entropy(spans, logits.data(), 1.0f / 24, losses.data(),
                                           d.data());
      for (std::size_t b = 0; b < 4; ++b) {
        double loss = 0;
        double log_totals = 0;
        for (int side = 0; side < 2; ++side) {
          const std::int32_t label = side == 0 ? first[b] : last[b];
          const auto at = [&](std::int32_t i) {
            return 2 * static_cast<std::size_t>(cu_seqlens[b] + i) + static_cast<std::size_t>(side);
          };
          double largest = -INFINITY;
          for (std::int32_t i = 0; i < lengths[b]; ++i) {
            largest = std::max(largest, as_double(logits[at(i)]));
          }
          double total = 0;
          for (std::int32_t i = 0; i < lengths[b]; ++i) {
            total += std::exp(as_double(logits[at(i)]) - largest);
          }
          loss += (std::log(total) - (as_double(logits[at(label)]) - largest)) / 2;
          log_totals += std::log(total);
          for (std::int32_t i = 0; i < cu_seqlens[b + 1] - cu_seqlens[b]; ++i) {
            const double p =
                i < lengths[b] ? std::exp(as_double(logits[at(i)]) - largest) / total : 0;
            const double want = (p - (i == label ? 1 : 0)) / 48;
            EXPECT_NEAR(as_double(d[at(i)]), want,
                        kRoundoff<Activation> * std::abs(want) + 16 * kRoundoff<float> / 48);
            if (i >= lengths[b]) {
              EXPECT_EQ(as_double(d[at(i)]), 0.0);
            }
          }
        }
        EXPECT_NEAR(losses[b], loss, 8 * kRoundoff<float> * (1 + loss + log_totals));
      }
    }
  });
}

TEST_P(PointwiseTest, CrossEntropyAgreesWithDoublePrecision) {
  with_type([&]<typename Activation>(Activation) {
    for (const std::int64_t classes : {2, 3, 10, 384}) {
      for (const float spread : {0.01f, 1.0f, 1000.0f}) {
        const std::int64_t rows = 9;
        const auto logits = random_vector<Activation>(rows * classes, 1, spread);
        std::vector<std::int32_t> labels(rows);
        for (std::int64_t b = 0; b < rows; ++b) labels[b] = static_cast<std::int32_t>(b % classes);
        std::vector<float> losses(rows);
        std::vector<Activation> d(rows * classes);
        const float scale = 1.0f / 24;
        ops<Activation>().softmax_cross_entropy(logits.data(), labels.data(), rows, classes, scale,
                                                0.0f, losses.data(), d.data());
        for (std::int64_t b = 0; b < rows; ++b) {
          double largest = -INFINITY;
          for (std::int64_t c = 0; c < classes; ++c) {
            largest = std::max(largest, as_double(logits[b * classes + c]));
          }
          double total = 0;
          for (std::int64_t c = 0; c < classes; ++c) {
            total += std::exp(as_double(logits[b * classes + c]) - largest);
          }
          const double loss =
              std::log(total) - (as_double(logits[b * classes + labels[b]]) - largest);
          EXPECT_NEAR(losses[b], loss, 4 * kRoundoff<float> * (1 + loss + std::log(total)));
          for (std::int64_t c = 0; c < classes; ++c) {
            const double p = std::exp(as_double(logits[b * classes + c]) - largest) / total;
            const double want = (p - (c == labels[b] ? 1 : 0)) / 24;
            EXPECT_NEAR(as_double(d[b * classes + c]), want,
                        kRoundoff<Activation> * std::abs(want) + 16 * kRoundoff<float> / 24);
          }
        }
      }
    }
  });
}

TEST_P(PointwiseTest, TheLossOfALogitThatIsNotFiniteIsNan) {
  with_type([&]<typename Activation>(Activation) {
    for (const float wrong : {NAN, INFINITY}) {
      for (const std::size_t at : {0U, 1U, 2U}) {
        std::vector<Activation> logits(3, runtime::from_float<Activation>(0.5f));
        logits[at] = runtime::from_float<Activation>(wrong);
        std::vector<Activation> d(3);
        for (const std::int32_t label : {0, 1, 2}) {
          for (const float smoothing : {0.0f, 0.1f}) {
            float loss = 0;
            ops<Activation>().softmax_cross_entropy(logits.data(), &label, 1, 3, 1.0f, smoothing,
                                                    &loss, d.data());
            EXPECT_TRUE(std::isnan(loss)) << wrong << " at " << at << ": " << loss;
          }
        }
      }
    }
  });
}

// tests/golden/train/write_goldens.py computed them in float64; the logits are exact in bf16.
TEST_P(PointwiseTest, SmoothedCrossEntropyAgreesWithTorch) {
  std::ifstream file(tilewright::testing::source_dir() / "tests/golden/train/label_smoothing.json");
  ASSERT_TRUE(file.is_open());
  const nlohmann::json cases = nlohmann::json::parse(file).at("cases");
  ASSERT_EQ(cases.size(), 5U);
  with_type([&]<typename Activation>(Activation) {
    for (const auto& one : cases) {
      const std::int64_t classes = one.at("classes");
      std::vector<Activation> logits;
      for (const float logit : one.at("logits").get<std::vector<float>>()) {
        logits.push_back(runtime::from_float<Activation>(logit));
      }
      const auto labels = one.at("labels").get<std::vector<std::int32_t>>();
      const auto rows = static_cast<std::int64_t>(labels.size());
      std::vector<float> losses(labels.size());
      std::vector<Activation> d(logits.size());
      const float scale = 1.0f / 24;
      ops<Activation>().softmax_cross_entropy(logits.data(), labels.data(), rows, classes, scale,
                                              one.at("epsilon").get<float>(), losses.data(),
                                              d.data());
      for (std::size_t b = 0; b < losses.size(); ++b) {
        const double loss = one.at("losses").at(b);
        EXPECT_NEAR(losses[b], loss, 8 * kRoundoff<float> * (1 + loss));
      }
      for (std::size_t i = 0; i < d.size(); ++i) {
        const double want = one.at("gradients").at(i).get<double>() / 24;
        EXPECT_NEAR(as_double(d[i]), want,
                    kRoundoff<Activation> * std::abs(want) + 16 * kRoundoff<float> / 24);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Isas, PointwiseTest, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace tilewright::kernels::testing
