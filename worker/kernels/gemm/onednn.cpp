// Activations and weights stay in plain row-major layouts. Two exceptions to the room's rules, both
// oneDNN's nature: a primitive is code made for one shape, so each thread that calls keeps the ones
// it made (creating one takes about as long as running it); and oneDNN allocates its own scratch.
#include "worker/kernels/gemm/onednn.h"

#include <omp.h>

#include <algorithm>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <utility>

namespace tilewright::kernels {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

enum class What { kForward, kForwardBias, kBackwardInput, kBackwardWeight };
// Operation, type, rows, k, n, threads.
using Key = std::tuple<What, Type, std::int64_t, std::int64_t, std::int64_t, int>;

struct Context {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, dnnl::primitive> primitives;
};

// The number of rows changes from step to step with packed tokens: bounded, and started afresh.
constexpr std::size_t kMostPrimitives = 512;

Context& context() {
  thread_local Context own;
  return own;
}

template <typename T>
constexpr Type kType = sizeof(T) == 2 ? Type::bf16 : Type::f32;

memory::desc matrix(std::int64_t rows, std::int64_t columns, Type type, Tag tag = Tag::ab) {
  return {{rows, columns}, type, tag};
}

memory wrap(const memory::desc& desc, const void* data) {
  return {desc, context().engine, const_cast<void*>(data)};
}

dnnl::primitive make(const Key& key) {
  const auto& [what, type, rows, k, n, threads] = key;
  const dnnl::engine& engine = context().engine;
  if (what == What::kBackwardWeight) {
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
  // W [n, k] serves forward as its transpose and backward as it is.
  const bool forward = what != What::kBackwardInput;
  const std::int64_t summed = forward ? k : n;
  const std::int64_t columns = forward ? n : k;
  const memory::desc left = matrix(rows, summed, type);
  const memory::desc right = matrix(summed, columns, type, forward ? Tag::ba : Tag::ab);
  const memory::desc out = matrix(rows, columns, type);
  using dnnl::matmul;
  if (what == What::kForwardBias) {
    const memory::desc bias = matrix(1, columns, Type::f32);
    return matmul(matmul::primitive_desc(matmul::desc(left, right, bias, out), engine));
  }
  return matmul(matmul::primitive_desc(matmul::desc(left, right, out), engine));
}

const dnnl::primitive& primitive(const Key& key) {
  Context& own = context();
  omp_set_num_threads(std::get<int>(key));
  if (own.primitives.size() > kMostPrimitives) own.primitives.clear();
  auto found = own.primitives.find(key);
  if (found == own.primitives.end()) found = own.primitives.emplace(key, make(key)).first;
  return found->second;
}

std::size_t packed_weight_size(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(n * k);
}

template <typename T>
void pack_weight(const float* w, std::int64_t /*n*/, std::int64_t k, std::int64_t row_begin,
                 std::int64_t row_end, T* forward, T* backward) {
  for (std::int64_t i = row_begin * k; i < row_end * k; ++i) {
    forward[i] = backward[i] = runtime::from_float<T>(w[i]);
  }
}

template <typename T>
void linear_forward(ThreadPool& pool, const T* x, const T* packed, const float* bias,
                    std::int64_t rows, std::int64_t k, std::int64_t n, T* y) {
  if (rows <= 0) return;
  const What what = bias != nullptr ? What::kForwardBias : What::kForward;
  const dnnl::primitive& run = primitive({what, kType<T>, rows, k, n, pool.size()});
  std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SRC, wrap(matrix(rows, k, kType<T>), x)},
      {DNNL_ARG_WEIGHTS, wrap(matrix(k, n, kType<T>, Tag::ba), packed)},
      {DNNL_ARG_DST, wrap(matrix(rows, n, kType<T>), y)}};
  if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, wrap(matrix(1, n, Type::f32), bias));
  run.execute(context().stream, arguments);
  context().stream.wait();
}

template <typename T>
void linear_backward_input(ThreadPool& pool, const T* dy, const T* packed, std::int64_t rows,
                           std::int64_t k, std::int64_t n, T* dx) {
  if (rows <= 0) return;
  const dnnl::primitive& run = primitive({What::kBackwardInput, kType<T>, rows, k, n, pool.size()});
  run.execute(context().stream, {{DNNL_ARG_SRC, wrap(matrix(rows, n, kType<T>), dy)},
                                 {DNNL_ARG_WEIGHTS, wrap(matrix(n, k, kType<T>), packed)},
                                 {DNNL_ARG_DST, wrap(matrix(rows, k, kType<T>), dx)}});
  context().stream.wait();
}

template <typename T>
void linear_backward_weight(ThreadPool& pool, const T* x, const T* dy, Shards shards,
                            std::int64_t k, std::int64_t n, float* dw, float* dbias,
                            std::byte* scratch) {
  const std::int64_t rows = shards.back() - shards.front();
  // The primitive always writes a bias gradient; one that is not wanted goes to scratch.
  float* bias = dbias != nullptr ? dbias : reinterpret_cast<float*>(scratch);
  if (rows <= 0) {
    std::fill_n(dw, n * k, 0.0f);
    std::fill_n(bias, n, 0.0f);
    return;
  }
  const dnnl::primitive& run =
      primitive({What::kBackwardWeight, kType<T>, rows, k, n, pool.size()});
  run.execute(context().stream,
              {{DNNL_ARG_SRC, wrap(matrix(rows, k, kType<T>), x + shards.front() * k)},
               {DNNL_ARG_DIFF_DST, wrap(matrix(rows, n, kType<T>), dy + shards.front() * n)},
               {DNNL_ARG_DIFF_WEIGHTS, wrap(matrix(n, k, Type::f32), dw)},
               {DNNL_ARG_DIFF_BIAS, wrap({{n}, Type::f32, Tag::a}, bias)}});
  context().stream.wait();
}

std::size_t linear_backward_weight_scratch(std::int64_t /*rows*/, std::int64_t /*shards*/,
                                           std::int64_t /*k*/, std::int64_t n, int /*threads*/) {
  return static_cast<std::size_t>(n) * sizeof(float);
}

}  // namespace

bool limit_onednn(Isa isa, bool bf16) {
  using dnnl::cpu_isa;
  if (isa == Isa::kRef || (isa == Isa::kAvx2 && bf16)) return false;
  cpu_isa most = cpu_isa::avx512_core_amx;
  if (isa == Isa::kAvx2) most = cpu_isa::avx2;
  if (isa == Isa::kAvx512) most = cpu_isa::avx512_core_vnni;
  if (isa == Isa::kAvx512Bf16) most = cpu_isa::avx512_core_bf16;
  // Refused when oneDNN has already chosen: then it stays with that.
  static_cast<void>(dnnl::set_max_cpu_isa(most));
  return true;
}

template <typename T>
void fill_gemm_onednn(Ops<T>& ops) {
  ops.packed_weight_size = {packed_weight_size, "onednn"};
  ops.pack_weight = {pack_weight<T>, "onednn"};
  ops.linear_forward = {linear_forward<T>, "onednn"};
  ops.linear_backward_input = {linear_backward_input<T>, "onednn"};
  ops.linear_backward_weight = {linear_backward_weight<T>, "onednn"};
  ops.linear_backward_weight_scratch = {linear_backward_weight_scratch, "onednn"};
}
template void fill_gemm_onednn<float>(Ops<float>&);
template void fill_gemm_onednn<bf16>(Ops<bf16>&);

}  // namespace tilewright::kernels
