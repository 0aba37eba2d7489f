// The arithmetic of a training step, as the layers call it: one table of kernels for a type of
// activations T (float or bf16) and an instruction set.
//
// Common rules
// - Tokens are packed: a matrix of activations is [T, columns] row-major without padding; tokens of
//   example b are the rows cu_seqlens[b] .. cu_seqlens[b + 1]. No padded position exists, unless
//   the caller puts some into the rows to compare: then attention alone must know which rows they
//   are.
// - Activations and packed weights are T; accumulation, statistics, masters and gradients of
//   parameters are fp32. In bf16 an output is rounded once, to nearest even, when it is stored.
// - Kernels allocate nothing, log nothing, throw nothing. Scratch comes from the caller, 64-byte
//   aligned; its size comes from the function `..._scratch` beside the kernel.
// - The pool shares work between threads only where results do not depend on each other: for one
//   instruction set each result's bits are the same for any number of threads, any number of rows
//   beside its own, and any place of a row in the batch. K is never split by threads or by T.
// - Sums over tokens (gradients of parameters) follow the tree of shards: `shards` holds 2^k + 1
//   offsets of consecutive shards in token rows; within a shard rows are added in rising order, and
//   the 2^k sums are combined as ((s0 + s1) + (s2 + s3)) + ...; an empty shard is an exact zero.
//   A gradient therefore does not depend on who computes which subtree.
// - No libm: exp, erf and tanh are the room's own polynomials; FMA is used where the source says
// so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "worker/runtime/bf16.h"
#include "worker/runtime/cpu.h"
#include "worker/runtime/thread_pool.h"

namespace tilewright::kernels {

using runtime::bf16;
using runtime::Isa;
using runtime::ThreadPool;

// A function and the name that the log shows for it: "avx512_bf16 14x32".
template <typename Signature>
struct Kernel;
template <typename R, typename... Arguments>
struct Kernel<R(Arguments...)> {
  R (*run)(Arguments...) = nullptr;
  const char* name = "";
  R operator()(Arguments... arguments) const { return run(arguments...); }
};

// 2^k + 1 rising row offsets of 2^k consecutive shards; see the rules above.
using Shards = std::span<const std::int32_t>;

// Dropout decided by a counter-based generator (Philox 4x32-10; Salmon et al., SC'11), so nothing
// is stored and any worker decides alike. An element is kept when its 16 random bits are at least
// `threshold` (round(p * 65536); 0 switches dropout off), and then multiplied by `scale`
// (65536 / (65536 - threshold)). See dropout.h for the key, the counter and which bits an element
// gets.
struct Dropout {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t site = 0;  // layer * 8 + place in the layer
  std::uint32_t threshold = 0;
  float scale = 1.0f;
};

// Who the rows of a packed matrix are: the example's index in the global batch and the token's
// position in its example, per row. Rows of one-row-per-example matrices have position 0.
struct RowIdentity {
  const std::int32_t* example = nullptr;
  const std::int32_t* position = nullptr;
};

struct LayerNorm {
  const float* gamma = nullptr;  // [H]
  const float* beta = nullptr;   // [H]
  float epsilon = 1e-12f;
};

// softmax(Q K^T / sqrt(D)) V, for each example and head apart. No S x S matrix is kept.
template <typename T>
struct AttentionForward {
  const T* qkv = nullptr;                    // [T, 3 * A * D]: a row is all of Q, then K, then V
  const std::int32_t* cu_seqlens = nullptr;  // [B + 1]
  const std::int32_t* example = nullptr;     // [B], index in the global batch, keys dropout
  // [B], at least 1: only the first so many tokens of an example are attended to; the rest are
  // padding, of weight exactly zero. null: all are.
  const std::int32_t* attended = nullptr;
  std::int64_t B = 0;
  std::int64_t heads = 0;
  std::int64_t head_size = 0;    // D, a multiple of 8
  std::int64_t max_seqlen = 0;   // the longest example of the batch, sizes the scratch
  Dropout dropout;               // of the probabilities; row = query, column = key
  T* context = nullptr;          // [T, A * D]
  float* log_sum_exp = nullptr;  // [T, A], of the scaled scores: all that backward needs
};

template <typename T>
struct AttentionBackward {
  AttentionForward<T> forward;   // as given to forward, context and log_sum_exp filled
  const T* d_context = nullptr;  // [T, A * D]
  T* d_qkv = nullptr;            // [T, 3 * A * D]
};

template <typename T>
struct Ops {
  Isa isa = Isa::kRef;

  // ---- Linear layers: y = x W^T + b, W [N, K] as Hugging Face stores it.

  // Elements of T that each packed copy of an [N, K] weight takes.
  Kernel<std::size_t(std::int64_t n, std::int64_t k)> packed_weight_size;
  // Writes rows [row_begin, row_end) of W (fp32 master) into both packed copies: `forward` for
  // y = x W^T, `backward` for dx = dy W. row_begin is a multiple of 64; row_end too, or N. The call
  // that ends at N also writes the padding. Disjoint ranges may be packed by different threads.
  Kernel<void(const float* w, std::int64_t n, std::int64_t k, std::int64_t row_begin,
              std::int64_t row_end, T* forward, T* backward)>
      pack_weight;
  // y[T, N] = x[T, K] W^T + bias; bias [N] or null.
  Kernel<void(ThreadPool& pool, const T* x, const T* packed_forward, const float* bias,
              std::int64_t rows, std::int64_t k, std::int64_t n, T* y)>
      linear_forward;
  // dx[T, K] = dy[T, N] W.
  Kernel<void(ThreadPool& pool, const T* dy, const T* packed_backward, std::int64_t rows,
              std::int64_t k, std::int64_t n, T* dx)>
      linear_backward_input;
  // dw[N, K] = dy^T x and dbias[N] = column sums of dy (null: not wanted), both overwritten, summed
  // over rows by the tree of shards. rows = [shards.front(), shards.back()) of x and dy.
  Kernel<void(ThreadPool& pool, const T* x, const T* dy, Shards shards, std::int64_t k,
              std::int64_t n, float* dw, float* dbias, std::byte* scratch)>
      linear_backward_weight;
  // Bytes of scratch for up to `rows` rows in up to `shards` shards.
  Kernel<std::size_t(std::int64_t rows, std::int64_t shards, std::int64_t k, std::int64_t n,
                     int threads)>
      linear_backward_weight_scratch;

  // ---- Attention.
  Kernel<void(ThreadPool& pool, const AttentionForward<T>& a, std::byte* scratch)>
      attention_forward;
  Kernel<void(ThreadPool& pool, const AttentionBackward<T>& a, std::byte* scratch)>
      attention_backward;
  // Bytes of scratch that either direction needs at most.
  Kernel<std::size_t(std::int64_t max_seqlen, std::int64_t heads, std::int64_t head_size,
                     int threads)>
      attention_scratch;

  // ---- Embeddings: sum[t] = word[ids[t]] + position[positions[t]] + type[types[t]] (fp32 masters,
  // added in that order), y = dropout(norm(sum)). sum [T, H] and stats [T, 2] (mean, 1 / deviation)
  // are kept for backward. y32 and y hold the same values, y rounded to T (for T = float, y may be
  // null, and y32 then serves as both).
  Kernel<void(ThreadPool& pool, const std::int32_t* ids, const std::int32_t* positions,
              const std::int32_t* types, const float* word, const float* position,
              const float* type, std::int64_t rows, std::int64_t H, LayerNorm norm, Dropout dropout,
              RowIdentity identity, float* sum, float* stats, float* y32, T* y)>
      embed_norm_forward;

  // ---- Residual and layer norm: sum = residual + dropout(x), y = norm(sum), biased variance as in
  // PyTorch. Same outputs as above.
  Kernel<void(ThreadPool& pool, const T* x, const float* residual, std::int64_t rows,
              std::int64_t H, LayerNorm norm, Dropout dropout, RowIdentity identity, float* sum,
              float* stats, float* y32, T* y)>
      add_norm_forward;
  // The gradient of y arrives in two parts, dy32 (residual path) and dy_branch (through the next
  // linear layer; null: absent): on return dy32 holds their sum (what norm_backward_parameters
  // wants), d_sum the gradient of `sum` (the residual's too), and dx = dropout's mask and scale
  // applied to d_sum, rounded to T. dx null: not wanted. d_sum may not alias dy32.
  Kernel<void(ThreadPool& pool, float* dy32, const T* dy_branch, const float* sum,
              const float* stats, std::int64_t rows, std::int64_t H, LayerNorm norm,
              Dropout dropout, RowIdentity identity, float* d_sum, T* dx)>
      add_norm_backward;
  // Backward of embed_norm_forward's dropout: dy32 = mask and scale applied to (dy32 + dy_branch),
  // in place; its norm is then taken back by add_norm_backward without dropout.
  Kernel<void(ThreadPool& pool, float* dy32, const T* dy_branch, std::int64_t rows, std::int64_t H,
              Dropout dropout, RowIdentity identity)>
      dropout_backward;
  // d_gamma[H] and d_beta[H], overwritten, summed over rows by the tree of shards.
  Kernel<void(ThreadPool& pool, const float* dy32, const float* sum, const float* stats,
              Shards shards, std::int64_t H, float* d_gamma, float* d_beta)>
      norm_backward_parameters;

  // ---- GELU, x/2 (1 + erf(x / sqrt 2)) as BERT has it, on `count` elements; may run in place.
  Kernel<void(ThreadPool& pool, const T* x, std::int64_t count, T* y)> gelu_forward;
  // dx = dy * gelu'(x); dx may be dy.
  Kernel<void(ThreadPool& pool, const T* x, const T* dy, std::int64_t count, T* dx)> gelu_backward;

  // ---- Pooler and head, one row an example.
  // activation = tanh(x), y = dropout(activation).
  Kernel<void(ThreadPool& pool, const T* x, std::int64_t rows, std::int64_t H, Dropout dropout,
              RowIdentity identity, T* activation, T* y)>
      tanh_dropout_forward;
  // dx = dropout'(dy) * (1 - activation^2); dx may be dy.
  Kernel<void(ThreadPool& pool, const T* activation, const T* dy, std::int64_t rows, std::int64_t H,
              Dropout dropout, RowIdentity identity, T* dx)>
      tanh_dropout_backward;
  // losses[b] = -log softmax(logits[b])[labels[b]]; d_logits = (softmax - onehot) * scale, where
  // scale is 1 / (examples of the global batch): a mean is taken once, never a mean of means.
  Kernel<void(const T* logits, const std::int32_t* labels, std::int64_t rows, std::int64_t classes,
              float scale, float* losses, T* d_logits)>
      softmax_cross_entropy;
};

// Embedding gradients: rows of `grad` [R, H], overwritten, one for each of R distinct ids of the
// global batch in rising order, so that a gradient is as long as the ids it touches, not as the
// vocabulary. occurrences[row_offsets[r] .. row_offsets[r + 1]) are the token rows where id r
// stands, rising (none: the row is zero); d_sum [T, H].
struct EmbeddingBackward {
  const float* d_sum = nullptr;
  const std::int32_t* occurrences = nullptr;
  const std::int32_t* row_offsets = nullptr;  // [R + 1]
  std::int64_t R = 0;
  std::int64_t H = 0;
  Shards shards;
  float* grad = nullptr;
};

// AdamW (Loshchilov and Hutter, 2019, as in torch.optim.AdamW): p -= lr * weight_decay * p, then
// p -= lr * (m / correction1) / (sqrt(v / correction2) + epsilon).
struct AdamW {
  float learning_rate = 0;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0;
  float correction1 = 1;     // 1 - beta1^t
  float correction2 = 1;     // 1 - beta2^t
  float gradient_scale = 1;  // clipping: min(1, max_norm / (norm + 1e-6))
};

// What does not depend on the type of activations.
struct ParameterOps {
  Isa isa = Isa::kRef;
  Kernel<void(ThreadPool& pool, const EmbeddingBackward& e)> embedding_backward;
  // Updates elements [0, count) in place, single-threaded: the caller cuts the vector. gradient may
  // be null: an all-zero gradient (rows that no token of the batch touched).
  Kernel<void(const AdamW& a, std::int64_t count, const float* gradient, float* parameter, float* m,
              float* v)>
      adamw;
  // Sum of squares of up to kNormBlock elements in double, in an order fixed by the index alone.
  Kernel<double(const float* x, std::int64_t count)> sum_of_squares;
};

// The gradient norm is summed over blocks of this many elements of the flat vector.
inline constexpr std::int64_t kNormBlock = 4096;

enum class GemmBackend { kNative, kOneDnn };

// The one dispatch point. `isa` must be one that this CPU runs (runtime::choose_isa). kOneDnn puts
// oneDNN under the linear layers (no promise of bits across numbers of rows or threads).
template <typename T>
Ops<T> make_ops(Isa isa, GemmBackend backend = GemmBackend::kNative);
extern template Ops<float> make_ops<float>(Isa, GemmBackend);
extern template Ops<bf16> make_ops<bf16>(Isa, GemmBackend);
ParameterOps make_parameter_ops(Isa isa);

}  // namespace tilewright::kernels
