// Reference attention of one example and head, query by query, in plain loops. Backward follows
// from O = P~ V, P~ = dropout(P), P = softmax(s), s = Q K^T / sqrt(D):
//   dV = P~^T dO,  dP = dropout'(dO V^T),  ds = P (dP - sum_j P dP),  dQ = ds K / sqrt(D),
//   dK = ds^T Q / sqrt(D),
// with P recomputed from the log-sum-exp of forward (Dao et al., FlashAttention, 2022).
#include <cmath>

#include "worker/kernels/ref/ref.h"
#include "worker/kernels/vector/vec_scalar.inl"
// After the vector type:
#include "worker/kernels/math/math.inl"

namespace tilewright::kernels::ref {
namespace {

using runtime::from_float;
using runtime::to_float;

// Q, K or V of one example and head in the packed rows.
template <typename Activation>
struct HeadRows {
  Activation* base;
  std::int64_t stride;
  Activation* row(std::int64_t i) const { return base + i * stride; }
};

template <typename Activation, typename Rows>
HeadRows<Rows> head_rows(const AttentionForward<Activation>& a, Rows* qkv, std::int64_t first_token,
                         std::int64_t head, int part) {
  const std::int64_t width = a.heads * a.head_size;
  return {qkv + first_token * 3 * width + part * width + head * a.head_size, 3 * width};
}

template <typename Left, typename Right>
float dot(const Left* a, const Right* b, std::int64_t D) {
  double total = 0;
  for (std::int64_t d = 0; d < D; ++d) {
    total += static_cast<double>(to_float(a[d])) * to_float(b[d]);
  }
  return static_cast<float>(total);
}

// Factor of probability (query i, key j): scale if kept, else zero.
float dropout_factor(const DropoutStream& stream, const std::uint64_t* masks, std::int64_t j) {
  if (stream.threshold == 0) return 1.0f;
  return (masks[j / kDropoutBlock] >> j % kDropoutBlock & 1) != 0 ? stream.scale : 0.0f;
}

// Number of attended tokens of an example. The others have probability zero: the loops skip them,
// and their dK and dV stay zero.
template <typename Activation>
std::int64_t key_count(const AttentionForward<Activation>& a, std::int64_t example,
                       std::int64_t S) {
  return a.attended == nullptr || S == 0 ? S : a.attended[example];
}

std::int64_t mask_words(std::int64_t S) { return (S + kDropoutBlock - 1) / kDropoutBlock; }

}  // namespace

// Masks, one row of probabilities, one row of their gradients, then dK, dV and a row of dQ in fp32.
std::size_t attention_scratch(std::int64_t max_seqlen, std::int64_t head_size) {
  return static_cast<std::size_t>(mask_words(max_seqlen)) * sizeof(std::uint64_t) +
         static_cast<std::size_t>(2 * max_seqlen + (2 * max_seqlen + 1) * head_size) *
             sizeof(float);
}

template <typename Activation>
void attention_forward(const AttentionForward<Activation>& a, const DropoutStream& stream,
                       std::int64_t example, std::int64_t head, std::byte* scratch) {
  const std::int64_t D = a.head_size;
  const std::int64_t first = a.cu_seqlens[example];
  const std::int64_t S = a.cu_seqlens[example + 1] - first;
  const std::int64_t keys = key_count(a, example, S);
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  const auto q = head_rows(a, a.qkv, first, head, 0);
  const auto k = head_rows(a, a.qkv, first, head, 1);
  const auto v = head_rows(a, a.qkv, first, head, 2);
  auto* masks = reinterpret_cast<std::uint64_t*>(scratch);
  auto* p = reinterpret_cast<float*>(masks + mask_words(S));
  for (std::int64_t i = 0; i < S; ++i) {
    float largest = -INFINITY;
    for (std::int64_t j = 0; j < keys; ++j) {
      p[j] = dot(q.row(i), k.row(j), D) * scale;
      if (p[j] > largest) largest = p[j];
    }
    double total = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      p[j] = exp_nonpositive(p[j] - largest);
      total += p[j];
    }
    const auto sum = static_cast<float>(total);
    a.log_sum_exp[(first + i) * a.heads + head] = largest + log_of(sum);
    if (stream.threshold != 0) {
      dropout_masks_ref(stream, a.example[example], static_cast<std::int32_t>(i),
                        static_cast<std::int32_t>(head), S, masks);
    }
    for (std::int64_t j = 0; j < keys; ++j) p[j] = p[j] / sum * dropout_factor(stream, masks, j);
    Activation* out = a.context + (first + i) * a.heads * D + head * D;
    for (std::int64_t d = 0; d < D; ++d) {
      double value = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        value += static_cast<double>(p[j]) * to_float(v.row(j)[d]);
      }
      out[d] = from_float<Activation>(static_cast<float>(value));
    }
  }
}

template <typename Activation>
void attention_backward(const AttentionBackward<Activation>& b, const DropoutStream& stream,
                        std::int64_t example, std::int64_t head, std::byte* scratch) {
  const AttentionForward<Activation>& a = b.forward;
  const std::int64_t D = a.head_size;
  const std::int64_t first = a.cu_seqlens[example];
  const std::int64_t S = a.cu_seqlens[example + 1] - first;
  const std::int64_t keys = key_count(a, example, S);
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  const auto q = head_rows(a, a.qkv, first, head, 0);
  const auto k = head_rows(a, a.qkv, first, head, 1);
  const auto v = head_rows(a, a.qkv, first, head, 2);
  const auto dq = head_rows(a, b.d_qkv, first, head, 0);
  const auto dk = head_rows(a, b.d_qkv, first, head, 1);
  const auto dv = head_rows(a, b.d_qkv, first, head, 2);
  auto* masks = reinterpret_cast<std::uint64_t*>(scratch);
  auto* p = reinterpret_cast<float*>(masks + mask_words(S));
  float* dp = p + S;
  float* dk32 = dp + S;
  float* dv32 = dk32 + S * D;
  float* dq32 = dv32 + S * D;
  for (std::int64_t x = 0; x < 2 * S * D; ++x) dk32[x] = 0.0f;
  for (std::int64_t i = 0; i < S; ++i) {
    const Activation* d_out = b.d_context + (first + i) * a.heads * D + head * D;
    const float lse = a.log_sum_exp[(first + i) * a.heads + head];
    if (stream.threshold != 0) {
      dropout_masks_ref(stream, a.example[example], static_cast<std::int32_t>(i),
                        static_cast<std::int32_t>(head), S, masks);
    }
    double p_dp = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      // Rounding can put a score slightly above the log-sum-exp.
      const float below = dot(q.row(i), k.row(j), D) * scale - lse;
      p[j] = exp_nonpositive(below < 0 ? below : 0.0f);
      const float factor = dropout_factor(stream, masks, j);
      dp[j] = dot(d_out, v.row(j), D) * factor;
      p_dp += static_cast<double>(p[j]) * dp[j];
      for (std::int64_t d = 0; d < D; ++d) dv32[j * D + d] += p[j] * factor * to_float(d_out[d]);
    }
    for (std::int64_t d = 0; d < D; ++d) dq32[d] = 0.0f;
    for (std::int64_t j = 0; j < keys; ++j) {
      const float ds = p[j] * (dp[j] - static_cast<float>(p_dp)) * scale;
      for (std::int64_t d = 0; d < D; ++d) {
        dq32[d] += ds * to_float(k.row(j)[d]);
        dk32[j * D + d] += ds * to_float(q.row(i)[d]);
      }
    }
    for (std::int64_t d = 0; d < D; ++d) dq.row(i)[d] = from_float<Activation>(dq32[d]);
  }
  for (std::int64_t j = 0; j < S; ++j) {
    for (std::int64_t d = 0; d < D; ++d) {
      dk.row(j)[d] = from_float<Activation>(dk32[j * D + d]);
      dv.row(j)[d] = from_float<Activation>(dv32[j * D + d]);
    }
  }
}

template void attention_forward(const AttentionForward<float>&, const DropoutStream&, std::int64_t,
                                std::int64_t, std::byte*);
template void attention_forward(const AttentionForward<bf16>&, const DropoutStream&, std::int64_t,
                                std::int64_t, std::byte*);
template void attention_backward(const AttentionBackward<float>&, const DropoutStream&,
                                 std::int64_t, std::int64_t, std::byte*);
template void attention_backward(const AttentionBackward<bf16>&, const DropoutStream&, std::int64_t,
                                 std::int64_t, std::byte*);

}  // namespace tilewright::kernels::ref
