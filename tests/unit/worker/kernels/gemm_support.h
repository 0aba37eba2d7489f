// What the tests of the linear layers share: the tables this CPU can run (and that of the AMX
// kernels on their software twin, which every CPU can), and random operands.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "worker/kernels/gemm/gemm.h"
#include "worker/kernels/gemm/linear.h"
#include "worker/kernels/ops.h"
#include "worker/runtime/memory.h"

namespace tilewright::kernels::testing {

template <typename T>
struct Table {
  std::string name;
  Ops<T> ops;
};

template <typename T>
std::vector<Table<T>> tables() {
  std::vector<Table<T>> all;
  for (const Isa isa : runtime::detect_cpu().isas) {
    all.push_back({std::string(runtime::name(isa)), make_ops<T>(isa)});
  }
  if constexpr (std::is_same_v<T, bf16>) {
    Ops<bf16> twin;
    Linear<bf16, kAmxTwin>::fill(twin);
    all.push_back({"amx twin", twin});
  }
  return all;
}

template <typename T>
std::vector<T> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<T> values(count);
  for (T& value : values) value = runtime::from_float<T>(normal(random));
  return values;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// A weight and its two packed copies.
template <typename T>
struct Weight {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<float> w;
  runtime::Buffer<T> forward;
  runtime::Buffer<T> backward;

  Weight(const Ops<T>& ops, std::int64_t n_in, std::int64_t k_in, unsigned seed)
      : n(n_in), k(k_in), w(random_values<float>(static_cast<std::size_t>(n * k), seed)) {
    const std::size_t size = ops.packed_weight_size(n, k);
    forward = runtime::Buffer<T>(size);
    backward = runtime::Buffer<T>(size);
    // Garbage first: packing must write the padding itself.
    std::memset(static_cast<void*>(forward.data()), 0x7f, size * sizeof(T));
    std::memset(static_cast<void*>(backward.data()), 0x7f, size * sizeof(T));
    ops.pack_weight(w.data(), n, k, 0, n, forward.data(), backward.data());
  }
};

template <typename T>
std::vector<T> forward(const Ops<T>& ops, ThreadPool& pool, const Weight<T>& weight,
                       const std::vector<T>& x, const float* bias, std::int64_t rows) {
  std::vector<T> y(static_cast<std::size_t>(rows * weight.n));
  ops.linear_forward(pool, x.data(), weight.forward.data(), bias, rows, weight.k, weight.n,
                     y.data());
  return y;
}

template <typename T>
std::vector<T> backward_input(const Ops<T>& ops, ThreadPool& pool, const Weight<T>& weight,
                              const std::vector<T>& dy, std::int64_t rows) {
  std::vector<T> dx(static_cast<std::size_t>(rows * weight.k));
  ops.linear_backward_input(pool, dy.data(), weight.backward.data(), rows, weight.k, weight.n,
                            dx.data());
  return dx;
}

struct Gradients {
  std::vector<float> dw;
  std::vector<float> dbias;
};

template <typename T>
Gradients backward_weight(const Ops<T>& ops, ThreadPool& pool, const std::vector<T>& x,
                          const std::vector<T>& dy, Shards shards, std::int64_t k, std::int64_t n) {
  Gradients g{std::vector<float>(static_cast<std::size_t>(n * k), -1.0f),
              std::vector<float>(static_cast<std::size_t>(n), -1.0f)};
  const auto shard_count = static_cast<std::int64_t>(shards.size()) - 1;
  const std::size_t bytes = ops.linear_backward_weight_scratch(shards.back() - shards.front(),
                                                               shard_count, k, n, pool.size());
  const runtime::Block scratch(bytes + 64);
  std::memset(scratch.data(), 0x7f, scratch.size());
  ops.linear_backward_weight(pool, x.data(), dy.data(), shards, k, n, g.dw.data(), g.dbias.data(),
                             scratch.data());
  for (std::size_t i = bytes; i < bytes + 64; ++i) {
    if (scratch.data()[i] != std::byte{0x7f}) g.dw.clear();  // written past the promised size
  }
  return g;
}

}  // namespace tilewright::kernels::testing
