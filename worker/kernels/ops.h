// The kernels of a training step as the layers call them: Ops<Activation> for bf16 or float
// activations and one instruction set.
//
// Dimensions: T tokens, B examples, S tokens of one example, H hidden size, A heads, D head size.
//
// Rules for all kernels
// - Tokens are packed: an activation matrix is [T, columns], row-major, without padding. The tokens
//   of example b are the rows cu_seqlens[b] .. cu_seqlens[b + 1]. A caller may add padding rows for
//   comparison; only attention then needs the number of padding rows.
// - Activations and packed weights have the type Activation; accumulators, statistics, master
//   weights and parameter gradients are fp32. A bf16 output is rounded once, to nearest even, when
//   it is stored.
// - Kernels do not allocate, log or throw. The caller provides scratch, 64-byte aligned, of the
//   size that the function `..._scratch` next to the kernel returns.
// - Threads share work only where results are independent. On one instruction set the bits of a
//   result do not depend on the number of threads, on the number of other rows, or on the position
//   of a row in the batch. The summed dimension K is never split by threads or by the number of
//   rows.
// - Sums over tokens (parameter gradients) follow the shard tree: `shards` holds the 2^k + 1 row
//   offsets of consecutive shards. Rows of a shard are added in ascending order (layer norm: in
//   blocks, see add_norm_backward), and the 2^k sums are combined as ((s0 + s1) + (s2 + s3)) + ...;
//   an empty shard is an exact zero. A gradient therefore does not depend on which worker computes
//   which subtree.
// - No libm: exp, tanh and the normal distribution are polynomials (math/math.inl). FMA is used
//   only where the source requests it.
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

// Maximum row width of the kernels with dropout; sizes the mask buffer.
inline constexpr std::int64_t kMaxHidden = 16384;
// Attention needs a head size that is a multiple of this: it reads bf16 in pairs.
inline constexpr std::int64_t kHeadSizeUnit = 2;

// A kernel as the layers call it: a launcher bound to the table of single-threaded kernels (or GEMM
// engine) of one instruction set. Calling it costs two indirect calls.
template <typename Signature>
struct Kernel;
template <typename Result, typename... Arguments>
struct Kernel<Result(Arguments...)> {
  const char* name = "";  // for the log: "avx512_bf16 14x32"

  Result operator()(Arguments... arguments) const { return run_(table_, arguments...); }
  // Calls kLauncher(table, arguments...). The table must outlive the kernel.
  template <auto kLauncher, typename Table>
  void bind(const Table& table) {
    run_ = [](const void* bound, Arguments... arguments) -> Result {
      return kLauncher(*static_cast<const Table*>(bound), arguments...);
    };
    table_ = &table;
    name = table.name;
  }
  // Calls kFunction(arguments...).
  template <auto kFunction>
  void bind(const char* kernel_name) {
    run_ = [](const void*, Arguments... arguments) -> Result { return kFunction(arguments...); };
    name = kernel_name;
  }

 private:
  Result (*run_)(const void* table, Arguments...) = nullptr;
  const void* table_ = nullptr;
};

// 2^k + 1 ascending row offsets of 2^k consecutive shards; see the rules above.
using Shards = std::span<const std::int32_t>;

// Dropout from a counter-based generator (Philox4x32-10; Salmon et al., SC'11): no mask is stored,
// and every worker computes the same one. An element is kept if its 16 random bits are at least
// `threshold` (round(p * 65536); 0: no dropout), and is then multiplied by `scale`
// (65536 / (65536 - threshold)). dropout/dropout.h defines the key, the counter and the bits.
struct Dropout {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t site = 0;  // layer * 8 + position in the layer
  std::uint32_t threshold = 0;
  float scale = 1.0f;
};

// Identity of each row of a packed matrix: the index of its example in the global batch and the
// position of its token in the example. In a matrix with one row per example the position is 0.
struct RowIdentity {
  const std::int32_t* example = nullptr;
  const std::int32_t* position = nullptr;
};

struct LayerNorm {
  const float* gamma = nullptr;  // [H]
  const float* beta = nullptr;   // [H]
  float epsilon = 1e-12f;
};

// The residual [T, H] of a residual connection: `values`, or with `stats` (not null) the norm of
// `values`, which costs less than reading a stored norm.
struct Residual {
  const float* values = nullptr;
  const float* stats = nullptr;  // [T, 2], see embed_norm_forward
  LayerNorm norm;
};

// softmax(Q K^T / sqrt(D)) V for each example and head (Vaswani et al., 2017). No S x S matrix is
// stored.
template <typename Activation>
struct AttentionForward {
  const Activation* qkv = nullptr;           // [T, 3 * A * D]: a row is all of Q, then K, then V
  const std::int32_t* cu_seqlens = nullptr;  // [B + 1]
  const std::int32_t* example = nullptr;     // [B], index in the global batch, for dropout
  // [B], at least 1: the number of leading tokens of each example that are attended to. The others
  // are padding with weight exactly zero. null: all tokens.
  const std::int32_t* attended = nullptr;
  std::int64_t B = 0;
  std::int64_t heads = 0;
  std::int64_t head_size = 0;     // D, a multiple of kHeadSizeUnit
  std::int64_t max_seqlen = 0;    // longest example of the batch; sizes the scratch
  Dropout dropout;                // of probabilities; row = key, column = query
  Activation* context = nullptr;  // [T, A * D]
  float* log_sum_exp =
      nullptr;  // [A, T], of the scaled scores; backward with pairs of bf16 reads it
};

template <typename Activation>
struct AttentionBackward {
  AttentionForward<Activation> forward;   // as passed to forward, with its results
  const Activation* d_context = nullptr;  // [T, A * D]
  Activation* d_qkv = nullptr;            // [T, 3 * A * D]
};

// The answers of the examples of a batch. Tokens count from 0 in each example.
struct AnswerSpans {
  const std::int32_t* cu_seqlens = nullptr;  // [B + 1]
  const std::int32_t* lengths = nullptr;     // [B], the leading tokens whose scores count
  const std::int32_t* first = nullptr;       // [B], the answer's first token, below the length
  const std::int32_t* last = nullptr;        // [B], its last token, below the length
  std::int64_t B = 0;
};

template <typename Activation>
struct Ops {
  // ---- Linear layers: y = x W^T + b, W [N, K] as Hugging Face stores it.

  // Number of elements of each packed copy of an [N, K] weight.
  Kernel<std::size_t(std::int64_t n, std::int64_t k)> packed_weight_size;
  // Packs rows [row_begin, row_end) of W (fp32 master weight) into both copies: `forward` for
  // y = x W^T, `backward` for dx = dy W. row_begin is a multiple of 64; row_end is one too, or N.
  // The call with row_end = N also writes the padding. Threads may pack disjoint ranges.
  Kernel<void(const float* w, std::int64_t n, std::int64_t k, std::int64_t row_begin,
              std::int64_t row_end, Activation* forward, Activation* backward)>
      pack_weight;
  // y[T, N] = x[T, K] W^T + bias; bias [N] or null.
  Kernel<void(ThreadPool& pool, const Activation* x, const Activation* packed_forward,
              const float* bias, std::int64_t rows, std::int64_t k, std::int64_t n, Activation* y,
              std::byte* scratch)>
      linear_forward;
  // dx[T, K] = dy[T, N] W.
  Kernel<void(ThreadPool& pool, const Activation* dy, const Activation* packed_backward,
              std::int64_t rows, std::int64_t k, std::int64_t n, Activation* dx,
              std::byte* scratch)>
      linear_backward_input;
  // Bytes of scratch of either, for any number of rows.
  Kernel<std::size_t(std::int64_t k, std::int64_t n, int threads)> linear_forward_scratch;
  // dw[N, K] = dy^T x and dbias[N] = column sums of dy (null: not computed), both overwritten,
  // summed by the shard tree over the rows [shards.front(), shards.back()) of x and dy.
  Kernel<void(ThreadPool& pool, const Activation* x, const Activation* dy, Shards shards,
              std::int64_t k, std::int64_t n, float* dw, float* dbias, std::byte* scratch)>
      linear_backward_weight;
  // Bytes of scratch for up to `rows` rows in up to `shards` shards.
  Kernel<std::size_t(std::int64_t rows, std::int64_t shards, std::int64_t k, std::int64_t n,
                     int threads)>
      linear_backward_weight_scratch;

  // ---- Attention.
  Kernel<void(ThreadPool& pool, const AttentionForward<Activation>& a, std::byte* scratch)>
      attention_forward;
  Kernel<void(ThreadPool& pool, const AttentionBackward<Activation>& a, std::byte* scratch)>
      attention_backward;
  // Bytes of scratch for either direction.
  Kernel<std::size_t(std::int64_t max_seqlen, std::int64_t heads, std::int64_t head_size,
                     int threads)>
      attention_scratch;

  // ---- Embeddings: sum[t] = word[ids[t]] + position[positions[t]] + type[types[t]] (fp32 master
  // weights, added in that order; type null: without it), y = dropout(norm(sum)). Backward needs
  // sum [T, H] and stats [T, 2] (mean, 1 / standard deviation). y is y32 rounded to Activation.
  Kernel<void(ThreadPool& pool, const std::int32_t* ids, const std::int32_t* positions,
              const std::int32_t* types, const float* word, const float* position,
              const float* type, std::int64_t rows, std::int64_t H, LayerNorm norm, Dropout dropout,
              RowIdentity identity, float* sum, float* stats, float* y32, Activation* y)>
      embed_norm_forward;

  // ---- Residual and layer norm: sum = residual + dropout(x), y = norm(sum), with biased variance
  // as in PyTorch (Ba et al., 2016). Outputs as for embeddings, without y32: it is Residual{sum,
  // stats, norm}.
  Kernel<void(ThreadPool& pool, const Activation* x, Residual residual, std::int64_t rows,
              std::int64_t H, LayerNorm norm, Dropout dropout, RowIdentity identity, float* sum,
              float* stats, Activation* y)>
      add_norm_forward;
  // Backward of the rows [shards.front(), shards.back()) of all matrices. The gradient of y has two
  // parts: d_stream (residual path) and dy_branch (through the next linear layer; may be null).
  // Outputs: d_stream = gradient of `sum`, which is also the residual's, in place; dx = mask and
  // scale of dropout applied to it, rounded to Activation (null: not computed); d_gamma[H] and
  // d_beta[H], overwritten, summed by the shard tree. Inside a shard, blocks of kNormRows rows are
  // summed first, and then the blocks in ascending order.
  Kernel<void(ThreadPool& pool, float* d_stream, const Activation* dy_branch, const float* sum,
              const float* stats, Shards shards, std::int64_t H, LayerNorm norm, Dropout dropout,
              RowIdentity identity, Activation* dx, float* d_gamma, float* d_beta,
              std::byte* scratch)>
      add_norm_backward;
  // Bytes of scratch for up to `rows` rows in up to `shards` shards.
  Kernel<std::size_t(std::int64_t rows, std::int64_t shards, std::int64_t H)>
      add_norm_backward_scratch;
  // Backward of the dropout in embed_norm_forward: d_stream = mask and scale applied to
  // (d_stream + dy_branch), in place. add_norm_backward without dropout then handles the norm.
  Kernel<void(ThreadPool& pool, float* d_stream, const Activation* dy_branch, std::int64_t rows,
              std::int64_t H, Dropout dropout, RowIdentity identity)>
      dropout_backward;

  // ---- GELU as in BERT, x/2 (1 + erf(x / sqrt 2)), of `count` elements; x may be y.
  Kernel<void(ThreadPool& pool, const Activation* x, std::int64_t count, Activation* y)>
      gelu_forward;
  // dx = dy * gelu'(x); dx may be dy.
  Kernel<void(ThreadPool& pool, const Activation* x, const Activation* dy, std::int64_t count,
              Activation* dx)>
      gelu_backward;

  // ---- Heads. Rows are examples, or tokens for question answering.
  // activation = tanh(x), y = dropout(activation).
  Kernel<void(ThreadPool& pool, const Activation* x, std::int64_t rows, std::int64_t H,
              Dropout dropout, RowIdentity identity, Activation* activation, Activation* y)>
      tanh_dropout_forward;
  // dx = dropout'(dy) * (1 - activation^2); dx may be dy.
  Kernel<void(ThreadPool& pool, const Activation* activation, const Activation* dy,
              std::int64_t rows, std::int64_t H, Dropout dropout, RowIdentity identity,
              Activation* dx)>
      tanh_dropout_backward;
  // activation = max(x, 0), y = dropout(activation).
  Kernel<void(ThreadPool& pool, const Activation* x, std::int64_t rows, std::int64_t H,
              Dropout dropout, RowIdentity identity, Activation* activation, Activation* y)>
      relu_dropout_forward;
  // dx = dropout'(dy) where activation > 0, otherwise 0; dx may be dy.
  Kernel<void(ThreadPool& pool, const Activation* activation, const Activation* dy,
              std::int64_t rows, std::int64_t H, Dropout dropout, RowIdentity identity,
              Activation* dx)>
      relu_dropout_backward;
  // y = dropout(x); y may be x. Its backward is dropout_backward.
  Kernel<void(ThreadPool& pool, const Activation* x, std::int64_t rows, std::int64_t H,
              Dropout dropout, RowIdentity identity, Activation* y)>
      dropout_forward;
  // losses[b] = -log softmax(logits[b])[labels[b]]; d_logits = (softmax - onehot) * scale. scale is
  // 1 / (examples of the global batch), so that the mean is taken once over the global batch.
  // Label smoothing: with `smoothing` e > 0 the target is (1 - e) onehot + e / classes in place of
  // onehot, and losses[b] = -sum_c target[c] log softmax(logits[b])[c] (Szegedy et al., 2016, as
  // transformers' LabelSmoother).
  Kernel<void(const Activation* logits, const std::int32_t* labels, std::int64_t rows,
              std::int64_t classes, float scale, float smoothing, float* losses,
              Activation* d_logits)>
      softmax_cross_entropy;
  // losses[b] = (logits[b] - values[b])^2; d_logits = 2 (logits - values) scale.
  Kernel<void(const Activation* logits, const float* values, std::int64_t rows, float scale,
              float* losses, Activation* d_logits)>
      squared_error;
  // Question answering: logits [T, 2] are the scores of a token as first and as last one of the
  // answer. losses[b] is the mean of the cross entropies of both over the example's first
  // lengths[b] tokens (Devlin et al., 2019); d_logits is their gradient times scale, and zero for
  // the others.
  Kernel<void(const AnswerSpans& spans, const Activation* logits, float scale, float* losses,
              Activation* d_logits)>
      span_cross_entropy;
};

// Embedding gradients: `grad` [R, H], overwritten, has one row for each of the R distinct ids of
// the global batch in ascending order, so its size follows the batch and not the vocabulary.
// occurrences[row_offsets[r] .. row_offsets[r + 1]) are the token rows of id r in ascending order
// (if there are none, the gradient row is zero); d_sum is [T, H].
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

// Kernels that do not depend on the activation type.
struct ParameterOps {
  Kernel<void(ThreadPool& pool, const EmbeddingBackward& e)> embedding_backward;
  // Updates elements [0, count) in place, single-threaded; the caller splits the vector. A null
  // gradient means all zeros (embedding rows without a token in the batch). If then m, v (all bits
  // zero) and the weight decay are zero too, no bit of a normal parameter changes.
  Kernel<void(const AdamW& a, std::int64_t count, const float* gradient, float* parameter, float* m,
              float* v)>
      adamw;
  // Sum of squares of up to kNormBlock elements in double, in an order that depends only on the
  // index.
  Kernel<double(const float* x, std::int64_t count)> sum_of_squares;
  // Copies elements that are not read again soon: full cache lines of `to` (64-byte aligned) go
  // past the caches to memory, which need not be read first. Single-threaded.
  Kernel<void(const float* from, std::int64_t count, float* to)> copy;
};

// Rows of a shard that add_norm_backward sums before it adds the sums of blocks.
inline constexpr std::int64_t kNormRows = 32;

// The gradient norm is summed over blocks of this many elements of the flat vector.
inline constexpr std::int64_t kNormBlock = 4096;

enum class GemmBackend { kNative, kOneDnn };

// Makes the kernels of an instruction set, which this CPU must support (runtime::choose_isa). With
// kOneDnn the linear layers run on oneDNN, whose bits depend on the number of rows and threads.
template <typename Activation>
Ops<Activation> make_ops(Isa isa, GemmBackend backend = GemmBackend::kNative);
extern template Ops<float> make_ops<float>(Isa, GemmBackend);
extern template Ops<bf16> make_ops<bf16>(Isa, GemmBackend);
ParameterOps make_parameter_ops(Isa isa);

}  // namespace tilewright::kernels
