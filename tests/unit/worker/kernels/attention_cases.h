// Reference attention of one batch in double precision with full S x S matrices, and the sums of
// magnitudes from which the tests derive their tolerances.
#pragma once

#include "tests/unit/worker/kernels/kernel_cases.h"
#include "worker/kernels/dropout/dropout.h"

namespace tilewright::kernels::testing {

using Doubles = std::vector<double>;

struct Shape {
  std::vector<std::int32_t> lengths;
  std::int64_t heads;
  std::int64_t head_size;
};

// Each result `x` is a sum; `x_terms` is the sum of the magnitudes of its terms.
struct DoubleAttention {
  Doubles context, context_terms, lse, d_qkv, d_qkv_terms;
};

inline DoubleAttention attention_in_double(const Examples& e, std::int64_t A, std::int64_t D,
                                           const Doubles& qkv, const Doubles& d_context,
                                           const Dropout& dropout) {
  const std::int64_t tokens = e.tokens();
  const std::int64_t width = A * D;
  const double scale = 1 / std::sqrt(static_cast<double>(D));
  const DropoutStream stream = make_dropout_stream(dropout);
  DoubleAttention out;
  out.context.resize(tokens * width);
  out.context_terms.resize(tokens * width);
  out.lse.resize(tokens * A);
  out.d_qkv.resize(3 * tokens * width);
  out.d_qkv_terms.resize(3 * tokens * width);
  for (std::int64_t b = 0; b < e.size(); ++b) {
    const std::int64_t first = e.cu_seqlens[b];
    const std::int64_t S = e.cu_seqlens[b + 1] - first;
    for (std::int64_t a = 0; a < A; ++a) {
      const auto at = [&](std::int64_t part, std::int64_t i, std::int64_t d) {
        return (first + i) * 3 * width + part * width + a * D + d;
      };
      const auto out_at = [&](std::int64_t i, std::int64_t d) {
        return (first + i) * width + a * D + d;
      };
      // Masks have a row for each key and a column for each query.
      const std::int64_t words = S / 64 + 1;
      std::vector<std::uint64_t> masks(static_cast<std::size_t>(S * words));
      for (std::int64_t j = 0; j < S; ++j) {
        dropout_masks_ref(stream, e.example[b], static_cast<std::int32_t>(j),
                          static_cast<std::int32_t>(a), S, masks.data() + j * words);
      }
      for (std::int64_t i = 0; i < S; ++i) {
        Doubles p(S), factor(S, 1.0), dp(S), dp_terms(S);
        double largest = -INFINITY;
        for (std::int64_t j = 0; j < S; ++j) {
          for (std::int64_t d = 0; d < D; ++d) p[j] += qkv[at(0, i, d)] * qkv[at(1, j, d)] * scale;
          largest = std::max(largest, p[j]);
        }
        double total = 0;
        for (double& x : p) total += x = std::exp(x - largest);
        for (double& x : p) x /= total;
        out.lse[a * tokens + first + i] = largest + std::log(total);
        if (dropout.threshold != 0) {
          for (std::int64_t j = 0; j < S; ++j) {
            factor[j] = (masks[j * words + i / 64] >> i % 64 & 1) != 0 ? dropout.scale : 0.0;
          }
        }
        double delta = 0;
        double delta_terms = 0;
        for (std::int64_t j = 0; j < S; ++j) {
          for (std::int64_t d = 0; d < D; ++d) {
            const double weight = p[j] * factor[j];
            const double v = qkv[at(2, j, d)];
            const double g = d_context[out_at(i, d)];
            out.context[out_at(i, d)] += weight * v;
            out.context_terms[out_at(i, d)] += weight * std::abs(v);
            out.d_qkv[at(2, j, d)] += weight * g;
            out.d_qkv_terms[at(2, j, d)] += weight * std::abs(g);
            dp[j] += g * v * factor[j];
            dp_terms[j] += std::abs(g * v) * factor[j];
          }
          delta += p[j] * dp[j];
          delta_terms += p[j] * dp_terms[j];
        }
        for (std::int64_t j = 0; j < S; ++j) {
          const double ds = p[j] * (dp[j] - delta) * scale;
          const double ds_terms = p[j] * (dp_terms[j] + delta_terms) * scale;
          for (std::int64_t d = 0; d < D; ++d) {
            out.d_qkv[at(0, i, d)] += ds * qkv[at(1, j, d)];
            out.d_qkv_terms[at(0, i, d)] += ds_terms * std::abs(qkv[at(1, j, d)]);
            out.d_qkv[at(1, j, d)] += ds * qkv[at(0, i, d)];
            out.d_qkv_terms[at(1, j, d)] += ds_terms * std::abs(qkv[at(0, i, d)]);
          }
        }
      }
    }
  }
  return out;
}

template <typename Activation>
struct AttentionResult {
  std::vector<Activation> context;
  std::vector<float> lse;
  std::vector<Activation> d_qkv;
};

// Runs the kernels forward and backward. attended: null, or the number of tokens of each example
// that are not padding.
template <typename Activation>
AttentionResult<Activation> run_attention(const Ops<Activation>& ops, int threads,
                                          const Examples& e, std::int64_t heads,
                                          std::int64_t head_size, const Activation* qkv,
                                          const Activation* d_context, const Dropout& dropout,
                                          const std::int32_t* attended = nullptr) {
  const std::int64_t width = heads * head_size;
  AttentionResult<Activation> out;
  out.context.resize(e.tokens() * width);
  out.lse.resize(e.tokens() * heads);
  out.d_qkv.resize(3 * e.tokens() * width);
  AttentionBackward<Activation> b;
  AttentionForward<Activation>& a = b.forward;
  a.qkv = qkv;
  a.cu_seqlens = e.cu_seqlens.data();
  a.example = e.example.data();
  a.attended = attended;
  a.B = e.size();
  a.heads = heads;
  a.head_size = head_size;
  a.max_seqlen = e.longest();
  a.dropout = dropout;
  a.context = out.context.data();
  a.log_sum_exp = out.lse.data();
  b.d_context = d_context;
  b.d_qkv = out.d_qkv.data();
  ThreadPool pool(threads);
  // Scratch filled with NaN shows reads of unwritten memory.
  const std::size_t bytes = ops.attention_scratch(a.max_seqlen, heads, head_size, threads);
  std::vector<std::byte> buffer(bytes + 64 + 64, std::byte{0xff});
  auto* scratch = buffer.data() + (64 - reinterpret_cast<std::uintptr_t>(buffer.data()) % 64);
  ops.attention_forward(pool, a, scratch);
  std::fill(buffer.begin(), buffer.end(), std::byte{0xff});
  ops.attention_backward(pool, b, scratch);
  for (std::size_t i = 0; i < 64 && scratch + bytes + i < buffer.data() + buffer.size(); ++i) {
    EXPECT_EQ(scratch[bytes + i], std::byte{0xff}) << "wrote past its scratch";
  }
  return out;
}

// The log-sum-exp of `count` tokens from `first` for each head, from those of all tokens.
inline std::vector<float> lse_of(const std::vector<float>& lse, std::int64_t heads,
                                 std::int64_t first, std::int64_t count) {
  const auto tokens = static_cast<std::int64_t>(lse.size()) / heads;
  std::vector<float> part;
  for (std::int64_t a = 0; a < heads; ++a) {
    const auto begin = lse.begin() + a * tokens + first;
    part.insert(part.end(), begin, begin + count);
  }
  return part;
}

template <typename Activation>
Doubles doubles(const std::vector<Activation>& values) {
  Doubles out;
  for (const Activation value : values) out.push_back(as_double(value));
  return out;
}

// |got - want| <= round-off of the type * |want| + share * terms, where `share` bounds the relative
// error of one term: fp32 round-off (the error of a score of magnitude up to about 10 becomes a
// relative error of its probability) and, for bf16, the rounding of a probability or its gradient
// to bf16.
template <typename Activation>
void expect_sums(const std::vector<Activation>& got, const Doubles& want, const Doubles& terms,
                 const char* what) {
  const double share =
      100 * kRoundoff<float> + (sizeof(Activation) == 2 ? 1.1 * kRoundoff<Activation> : 0);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(as_double(got[i]) - want[i]),
              kRoundoff<Activation> * std::abs(want[i]) + share * terms[i] + 1e-30)
        << what << " at " << i << ": got " << as_double(got[i]) << ", expected " << want[i];
  }
}

// All scores of a query are equal and of size 5e11, beyond the range in which the exponents are
// exact.
template <typename Activation>
void expect_equal_weights_of_large_scores(const Ops<Activation>& ops) {
  constexpr std::int64_t kHeadSize = 64;
  constexpr float kLarge = 999424;  // exact in bf16
  const Examples e = make_examples({40});
  for (const float sign : {1.0f, -1.0f}) {
    auto qkv = random_vector<Activation>(3 * e.tokens() * kHeadSize, 1);
    for (std::size_t i = 0; i < qkv.size(); ++i) {
      const std::size_t part = i / kHeadSize % 3;
      if (part == 0) qkv[i] = runtime::from_float<Activation>(kLarge);
      if (part == 1) qkv[i] = runtime::from_float<Activation>(sign * kLarge);
    }
    const auto d_context = random_vector<Activation>(e.tokens() * kHeadSize, 2);
    const auto got = run_attention<Activation>(ops, 1, e, 1, kHeadSize, qkv.data(),
                                               d_context.data(), make_dropout(0));
    const auto want =
        attention_in_double(e, 1, kHeadSize, doubles(qkv), doubles(d_context), make_dropout(0));
    expect_sums(got.context, want.context, want.context_terms, "context");
    for (const Activation x : got.d_qkv) ASSERT_TRUE(std::isfinite(as_double(x))) << sign;
  }
}

}  // namespace tilewright::kernels::testing
