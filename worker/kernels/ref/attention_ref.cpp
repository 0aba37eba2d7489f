// Reference attention of one example, query by query, in plain loops. Backward follows
// from O = P~ V, P~ = dropout(P), P = softmax(s), s = Q K^T / sqrt(D):
//   dV = P~^T dO,  dP = dropout'(dO V^T),  ds = P (dP - sum_j P dP),  dQ = ds K / sqrt(D),
//   dK = ds^T Q / sqrt(D),
// with P recomputed as in forward.
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

std::int64_t mask_words(std::int64_t S) { return (S + kDropoutBlock - 1) / kDropoutBlock; }

// The dropout masks of one head: a row for each key, a column for each query.
class Masks {
 public:
  Masks(const DropoutStream& stream, std::int32_t example, std::int64_t head, std::int64_t keys,
        std::int64_t S, std::uint64_t* words)
      : stream_(stream), S_(S), words_(words) {
    if (stream.threshold == 0) return;
    for (std::int64_t j = 0; j < keys; ++j) {
      dropout_masks_ref(stream, example, static_cast<std::int32_t>(j),
                        static_cast<std::int32_t>(head), S, words + j * mask_words(S));
    }
  }
  // Factor of the probability of query i and key j: scale if kept, else zero.
  float factor(std::int64_t i, std::int64_t j) const {
    if (stream_.threshold == 0) return 1.0f;
    const std::uint64_t word = words_[j * mask_words(S_) + i / kDropoutBlock];
    return (word >> i % kDropoutBlock & 1) != 0 ? stream_.scale : 0.0f;
  }

 private:
  const DropoutStream& stream_;
  std::int64_t S_;
  std::uint64_t* words_;
};

// Number of attended tokens of an example. The others have probability zero: the loops skip them,
// and their dK and dV stay zero.
template <typename Activation>
std::int64_t key_count(const AttentionForward<Activation>& a, std::int64_t example,
                       std::int64_t S) {
  return a.attended == nullptr || S == 0 ? S : a.attended[example];
}

template <typename Activation>
float* log_sum_exp(const AttentionForward<Activation>& a, std::int64_t head, std::int64_t first) {
  return a.log_sum_exp + head * a.cu_seqlens[a.B] + first;
}

struct Softmax {
  float largest = -INFINITY;  // scaled score
  double total = 0;
};
// Sets p to e^(score - largest score) of one query.
template <typename Activation>
Softmax numerators(const Activation* query, const HeadRows<const Activation>& k, std::int64_t keys,
                   std::int64_t D, float scale, float* p) {
  Softmax softmax;
  for (std::int64_t j = 0; j < keys; ++j) {
    p[j] = dot(query, k.row(j), D) * scale;
    if (p[j] > softmax.largest) softmax.largest = p[j];
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    p[j] = exp_nonpositive(p[j] - softmax.largest);
    softmax.total += p[j];
  }
  return softmax;
}

template <typename Activation>
void forward_head(const AttentionForward<Activation>& a, const DropoutStream& stream,
                  std::int64_t example, std::int64_t head, Range queries, std::byte* scratch) {
  const std::int64_t D = a.head_size;
  const std::int64_t first = a.cu_seqlens[example];
  const std::int64_t S = a.cu_seqlens[example + 1] - first;
  const std::int64_t keys = key_count(a, example, S);
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  const auto q = head_rows(a, a.qkv, first, head, 0);
  const auto k = head_rows(a, a.qkv, first, head, 1);
  const auto v = head_rows(a, a.qkv, first, head, 2);
  auto* const words = reinterpret_cast<std::uint64_t*>(scratch);
  const Masks masks(stream, a.example[example], head, keys, S, words);
  float* const lse = log_sum_exp(a, head, first);
  auto* p = reinterpret_cast<float*>(words + S * mask_words(S));
  for (std::int64_t i = queries.begin; i < queries.end; ++i) {
    const Softmax softmax = numerators(q.row(i), k, keys, D, scale, p);
    const auto sum = static_cast<float>(softmax.total);
    lse[i] = softmax.largest + log_of(sum);
    for (std::int64_t j = 0; j < keys; ++j) p[j] = p[j] / sum * masks.factor(i, j);
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
void backward_head(const AttentionBackward<Activation>& b, const DropoutStream& stream,
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
  auto* const words = reinterpret_cast<std::uint64_t*>(scratch);
  const Masks masks(stream, a.example[example], head, keys, S, words);
  auto* p = reinterpret_cast<float*>(words + S * mask_words(S));
  float* dp = p + S;
  float* dk32 = dp + S;
  float* dv32 = dk32 + S * D;
  float* dq32 = dv32 + S * D;
  for (std::int64_t x = 0; x < 2 * S * D; ++x) dk32[x] = 0.0f;
  for (std::int64_t i = 0; i < S; ++i) {
    const Activation* d_out = b.d_context + (first + i) * a.heads * D + head * D;
    // As in forward: the rounding of the log-sum-exp would scale all P of the query.
    const auto sum = static_cast<float>(numerators(q.row(i), k, keys, D, scale, p).total);
    double p_dp = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      p[j] /= sum;
      const float factor = masks.factor(i, j);
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

}  // namespace

// Masks of one head, one row of probabilities, one row of their gradients, then dK, dV and a row of
// dQ in fp32.
std::size_t attention_scratch(std::int64_t max_seqlen, std::int64_t head_size) {
  return static_cast<std::size_t>(max_seqlen * mask_words(max_seqlen)) * sizeof(std::uint64_t) +
         static_cast<std::size_t>(2 * max_seqlen + (2 * max_seqlen + 1) * head_size) *
             sizeof(float);
}

template <typename Activation>
void attention_forward(const AttentionForward<Activation>& a, const DropoutStream& stream,
                       std::int64_t example, Range heads, Range queries, std::byte* scratch) {
  for (std::int64_t head = heads.begin; head < heads.end; ++head) {
    forward_head(a, stream, example, head, queries, scratch);
  }
}

template <typename Activation>
void attention_backward(const AttentionBackward<Activation>& b, const DropoutStream& stream,
                        std::int64_t example, Range heads, std::byte* scratch) {
  for (std::int64_t head = heads.begin; head < heads.end; ++head) {
    backward_head(b, stream, example, head, scratch);
  }
}

template void attention_forward(const AttentionForward<float>&, const DropoutStream&, std::int64_t,
                                Range, Range, std::byte*);
template void attention_forward(const AttentionForward<bf16>&, const DropoutStream&, std::int64_t,
                                Range, Range, std::byte*);
template void attention_backward(const AttentionBackward<float>&, const DropoutStream&,
                                 std::int64_t, Range, std::byte*);
template void attention_backward(const AttentionBackward<bf16>&, const DropoutStream&, std::int64_t,
                                 Range, std::byte*);

}  // namespace tilewright::kernels::ref
