// Shared by the tests of the linear layers: one case per instruction set (and the AMX emulator) and
// activation type, random operands, and calls with checked scratch.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/worker/kernels/kernel_cases.h"
#include "tests/unit/worker/kernels/model_kernels.h"
#include "worker/runtime/memory.h"

namespace tilewright::kernels::testing {

// Linear layers of an instruction set, or the AMX kernels on emulated tiles (bf16 only).
struct GemmCase {
  std::optional<Isa> isa;  // nullopt: the AMX emulator, which runs on every CPU
  bool is_bf16 = false;
};

inline std::vector<GemmCase> gemm_cases() {
  std::vector<GemmCase> cases;
  for (const Case& one : all_cases()) cases.push_back({one.isa, one.is_bf16});
  cases.push_back({std::nullopt, true});
  return cases;
}

inline std::string gemm_case_name(const ::testing::TestParamInfo<GemmCase>& info) {
  const std::string engine =
      info.param.isa ? std::string(runtime::name(*info.param.isa)) : "amx_emulator";
  return engine + (info.param.is_bf16 ? "_on_bf16" : "_on_fp32");
}

// A test that runs once per GemmCase. It is skipped, with a message that names the instruction set,
// if the CPU does not support it. The body of a test:
//
//   with_ops([&]<typename Activation>(const Ops<Activation>& ops) { ... });
class GemmTest : public ::testing::TestWithParam<GemmCase> {
 protected:
  void SetUp() override {
    const auto isa = GetParam().isa;
    if (isa && !cpu_supports(*isa)) {
      GTEST_SKIP() << "this CPU has no " << runtime::name(*isa);
    }
  }
  template <typename Body>
  void with_ops(Body&& body) {
    if (!GetParam().isa) {
      body(kernels_of_emulated_amx().ops);
    } else if (GetParam().is_bf16) {
      body(make_ops<bf16>(*GetParam().isa));
    } else {
      body(make_ops<float>(*GetParam().isa));
    }
  }
};

template <typename Activation>
std::vector<Activation> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<Activation> values(count);
  for (Activation& value : values) value = runtime::from_float<Activation>(normal(random));
  return values;
}

template <typename Activation>
bool same_bits(const std::vector<Activation>& a, const std::vector<Activation>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(Activation)) == 0;
}

// A weight and its two packed copies.
template <typename Activation>
struct Weight {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<float> w;
  runtime::Buffer<Activation> forward;
  runtime::Buffer<Activation> backward;

  Weight(const Ops<Activation>& ops, std::int64_t n_in, std::int64_t k_in, unsigned seed)
      : n(n_in), k(k_in), w(random_values<float>(static_cast<std::size_t>(n * k), seed)) {
    const std::size_t size = ops.packed_weight_size(n, k);
    forward = runtime::Buffer<Activation>(size);
    backward = runtime::Buffer<Activation>(size);
    // Packing must write the padding itself, so the buffers start with other bytes.
    std::memset(static_cast<void*>(forward.data()), 0x7f, size * sizeof(Activation));
    std::memset(static_cast<void*>(backward.data()), 0x7f, size * sizeof(Activation));
    ops.pack_weight(w.data(), n, k, 0, n, forward.data(), backward.data());
  }
};

// Scratch of a kernel, and whether it wrote past the announced size.
class CheckedScratch {
 public:
  explicit CheckedScratch(std::size_t bytes) : bytes_(bytes), block_(bytes + kGuard) {
    std::memset(block_.data(), 0x7f, bytes + kGuard);
  }
  std::byte* data() { return block_.data(); }
  bool exceeded() const {
    return std::any_of(block_.data() + bytes_, block_.data() + bytes_ + kGuard,
                       [](std::byte b) { return b != std::byte{0x7f}; });
  }

 private:
  static constexpr std::size_t kGuard = 64;
  std::size_t bytes_;
  runtime::Block block_;
};

template <typename Activation>
std::vector<Activation> forward(const Ops<Activation>& ops, ThreadPool& pool,
                                const Weight<Activation>& weight, const std::vector<Activation>& x,
                                const float* bias, std::int64_t rows) {
  std::vector<Activation> y(static_cast<std::size_t>(rows * weight.n));
  CheckedScratch scratch(ops.linear_forward_scratch(weight.k, weight.n, pool.size()));
  ops.linear_forward(pool, x.data(), weight.forward.data(), bias, rows, weight.k, weight.n,
                     y.data(), scratch.data());
  EXPECT_FALSE(scratch.exceeded());
  return y;
}

template <typename Activation>
std::vector<Activation> backward_input(const Ops<Activation>& ops, ThreadPool& pool,
                                       const Weight<Activation>& weight,
                                       const std::vector<Activation>& dy, std::int64_t rows) {
  std::vector<Activation> dx(static_cast<std::size_t>(rows * weight.k));
  CheckedScratch scratch(ops.linear_forward_scratch(weight.k, weight.n, pool.size()));
  ops.linear_backward_input(pool, dy.data(), weight.backward.data(), rows, weight.k, weight.n,
                            dx.data(), scratch.data());
  EXPECT_FALSE(scratch.exceeded());
  return dx;
}

struct Gradients {
  std::vector<float> dw;
  std::vector<float> dbias;
};

template <typename Activation>
Gradients backward_weight(const Ops<Activation>& ops, ThreadPool& pool,
                          const std::vector<Activation>& x, const std::vector<Activation>& dy,
                          Shards shards, std::int64_t k, std::int64_t n) {
  Gradients g{std::vector<float>(static_cast<std::size_t>(n * k), -1.0f),
              std::vector<float>(static_cast<std::size_t>(n), -1.0f)};
  const auto shard_count = static_cast<std::int64_t>(shards.size()) - 1;
  const std::size_t bytes = ops.linear_backward_weight_scratch(shards.back() - shards.front(),
                                                               shard_count, k, n, pool.size());
  CheckedScratch scratch(bytes);
  ops.linear_backward_weight(pool, x.data(), dy.data(), shards, k, n, g.dw.data(), g.dbias.data(),
                             scratch.data());
  EXPECT_FALSE(scratch.exceeded());
  return g;
}

}  // namespace tilewright::kernels::testing
