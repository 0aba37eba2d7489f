// Linear layers on oneDNN with plain row-major activations and weights. oneDNN forces two
// exceptions to the rules of this module: each calling thread caches primitives, which are code
// generated for one shape (creating one takes about as long as running it), and oneDNN allocates
// scratch.
#include "worker/kernels/gemm/onednn.h"

#include <omp.h>

#include <algorithm>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <utility>

#include "worker/kernels/isa_table.h"

namespace tilewright::kernels {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

enum class Operation { kForward, kForwardBias, kBackwardInput, kBackwardWeight };
// Operation, type, rows, k, n, threads.
using Key = std::tuple<Operation, Type, std::int64_t, std::int64_t, std::int64_t, int>;

struct Context {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, dnnl::primitive> primitives;
};

// With packed tokens the number of rows changes from step to step, so the cache is bounded; it is
// cleared when full.
constexpr std::size_t kMaxPrimitives = 512;

Context& context() {
  thread_local Context own;
  return own;
}

template <typename Activation>
constexpr Type kType = sizeof(Activation) == 2 ? Type::bf16 : Type::f32;

memory::desc matrix(std::int64_t rows, std::int64_t columns, Type type, Tag tag = Tag::ab) {
  return {{rows, columns}, type, tag};
}

memory wrap(const memory::desc& desc, const void* data) {
  return {desc, context().engine, const_cast<void*>(data)};
}

dnnl::primitive make(const Key& key) {
  const auto& [operation, type, rows, k, n, threads] = key;
  const dnnl::engine& engine = context().engine;
  if (operation == Operation::kBackwardWeight) {
    const memory::desc x = matrix(rows, k, type);
    const memory::desc dy = matrix(rows, n, type);
    const memory::desc dw = matrix(n, k, Type::f32);
    const memory::desc dbias({n}, Type::f32, Tag::a);
    using Forward = dnnl::inner_product_forward;
    using Backward = dnnl::inner_product_backward_weights;
    const Forward::primitive_desc hint(
        Forward::desc(dnnl::prop_kind::forward_training, x, matrix(n, k, type), dbias, dy), engine);
    return Backward(Backward::primitive_desc(Backward::desc(x, dw, dbias, dy), engine, hint));
  }
  // W [n, k]: forward uses its transpose, backward W itself.
  const bool forward = operation != Operation::kBackwardInput;
  const std::int64_t summed = forward ? k : n;
  const std::int64_t columns = forward ? n : k;
  const memory::desc left = matrix(rows, summed, type);
  const memory::desc right = matrix(summed, columns, type, forward ? Tag::ba : Tag::ab);
  const memory::desc out = matrix(rows, columns, type);
  using dnnl::matmul;
  if (operation == Operation::kForwardBias) {
    const memory::desc bias = matrix(1, columns, Type::f32);
    return matmul(matmul::primitive_desc(matmul::desc(left, right, bias, out), engine));
  }
  return matmul(matmul::primitive_desc(matmul::desc(left, right, out), engine));
}

const dnnl::primitive& primitive(const Key& key) {
  Context& own = context();
  omp_set_num_threads(std::get<int>(key));
  if (own.primitives.size() > kMaxPrimitives) own.primitives.clear();
  auto found = own.primitives.find(key);
  if (found == own.primitives.end()) found = own.primitives.emplace(key, make(key)).first;
  return found->second;
}

std::size_t packed_weight_size(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(n * k);
}

template <typename Activation>
void pack_weight(const float* w, std::int64_t /*n*/, std::int64_t k, std::int64_t row_begin,
                 std::int64_t row_end, Activation* forward, Activation* backward) {
  for (std::int64_t i = row_begin * k; i < row_end * k; ++i) {
    forward[i] = backward[i] = runtime::from_float<Activation>(w[i]);
  }
}

template <typename Activation>
void linear_forward(ThreadPool& pool, const Activation* x, const Activation* packed,
                    const float* bias, std::int64_t rows, std::int64_t k, std::int64_t n,
                    Activation* y, std::byte* /*scratch*/) {
  if (rows <= 0) return;
  const Operation operation = bias != nullptr ? Operation::kForwardBias : Operation::kForward;
  const dnnl::primitive& run = primitive({operation, kType<Activation>, rows, k, n, pool.size()});
  std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SRC, wrap(matrix(rows, k, kType<Activation>), x)},
      {DNNL_ARG_WEIGHTS, wrap(matrix(k, n, kType<Activation>, Tag::ba), packed)},
      {DNNL_ARG_DST, wrap(matrix(rows, n, kType<Activation>), y)}};
  if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, wrap(matrix(1, n, Type::f32), bias));
  run.execute(context().stream, arguments);
  context().stream.wait();
}

template <typename Activation>
void linear_backward_input(ThreadPool& pool, const Activation* dy, const Activation* packed,
                           std::int64_t rows, std::int64_t k, std::int64_t n, Activation* dx,
                           std::byte* /*scratch*/) {
  if (rows <= 0) return;
  const dnnl::primitive& run =
      primitive({Operation::kBackwardInput, kType<Activation>, rows, k, n, pool.size()});
  run.execute(context().stream, {{DNNL_ARG_SRC, wrap(matrix(rows, n, kType<Activation>), dy)},
                                 {DNNL_ARG_WEIGHTS, wrap(matrix(n, k, kType<Activation>), packed)},
                                 {DNNL_ARG_DST, wrap(matrix(rows, k, kType<Activation>), dx)}});
  context().stream.wait();
}

template <typename Activation>
void linear_backward_weight(ThreadPool& pool, const Activation* x, const Activation* dy,
                            Shards shards, std::int64_t k, std::int64_t n, float* dw, float* dbias,
                            std::byte* scratch) {
  const std::int64_t rows = shards.back() - shards.front();
  // The primitive always writes a bias gradient; an unused one is written to scratch.
  float* bias = dbias != nullptr ? dbias : reinterpret_cast<float*>(scratch);
  if (rows <= 0) {
    std::fill_n(dw, n * k, 0.0f);
    std::fill_n(bias, n, 0.0f);
    return;
  }
  const dnnl::primitive& run =
      primitive({Operation::kBackwardWeight, kType<Activation>, rows, k, n, pool.size()});
  run.execute(
      context().stream,
      {{DNNL_ARG_SRC, wrap(matrix(rows, k, kType<Activation>), x + shards.front() * k)},
       {DNNL_ARG_DIFF_DST, wrap(matrix(rows, n, kType<Activation>), dy + shards.front() * n)},
       {DNNL_ARG_DIFF_WEIGHTS, wrap(matrix(n, k, Type::f32), dw)},
       {DNNL_ARG_DIFF_BIAS, wrap({{n}, Type::f32, Tag::a}, bias)}});
  context().stream.wait();
}

std::size_t linear_forward_scratch(std::int64_t /*k*/, std::int64_t /*n*/, int /*threads*/) {
  return 0;
}

std::size_t linear_backward_weight_scratch(std::int64_t /*rows*/, std::int64_t /*shards*/,
                                           std::int64_t /*k*/, std::int64_t n, int /*threads*/) {
  return static_cast<std::size_t>(n) * sizeof(float);
}

int onednn_isa(Isa isa, runtime::Precision precision) {
  const IsaRow& row = isa_row(isa);
  return precision == runtime::Precision::kBf16 ? row.gemm_bf16.onednn_isa
                                                : row.gemm_fp32.onednn_isa;
}

}  // namespace

bool has_onednn(Isa isa, runtime::Precision precision) {
  return onednn_isa(isa, precision) != kNoOneDnn;
}

bool limit_onednn_isa(Isa isa, runtime::Precision precision) {
  const int max_isa = onednn_isa(isa, precision);
  if (max_isa == kNoOneDnn) return false;
  // Fails if oneDNN has already selected its instruction set; that selection then remains.
  static_cast<void>(dnnl::set_max_cpu_isa(static_cast<dnnl::cpu_isa>(max_isa)));
  return true;
}

template <typename Activation>
void fill_gemm_onednn(Ops<Activation>& ops) {
  ops.packed_weight_size.template bind<packed_weight_size>("onednn");
  ops.pack_weight.template bind<pack_weight<Activation>>("onednn");
  ops.linear_forward.template bind<linear_forward<Activation>>("onednn");
  ops.linear_backward_input.template bind<linear_backward_input<Activation>>("onednn");
  ops.linear_forward_scratch.template bind<linear_forward_scratch>("onednn");
  ops.linear_backward_weight.template bind<linear_backward_weight<Activation>>("onednn");
  ops.linear_backward_weight_scratch.template bind<linear_backward_weight_scratch>("onednn");
}
template void fill_gemm_onednn<float>(Ops<float>&);
template void fill_gemm_onednn<bf16>(Ops<bf16>&);

}  // namespace tilewright::kernels
