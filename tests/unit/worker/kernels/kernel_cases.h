// Shared by the kernel tests: one case per instruction set and activation type, random inputs, and
// packed examples with their row identities.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "worker/kernels/ops.h"

namespace tilewright::kernels::testing {

struct Case {
  Isa isa;
  bool is_bf16;
};

inline std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return std::string(runtime::name(info.param.isa)) +
         (info.param.is_bf16 ? "_on_bf16" : "_on_fp32");
}

inline std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Isa isa : runtime::kAllIsas) {
    cases.push_back({isa, false});
    cases.push_back({isa, true});
  }
  return cases;
}

inline std::string isa_name(const ::testing::TestParamInfo<Isa>& info) {
  return std::string(runtime::name(info.param));
}

inline bool cpu_supports(Isa isa) {
  const auto isas = runtime::detect_cpu().isas;
  return std::find(isas.begin(), isas.end(), isa) != isas.end();
}

// A test that runs once per instruction set and is skipped by name where the CPU does not support
// it. .ci/skipped accepts a reason that starts with "this CPU has no".
class IsaTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!cpu_supports(GetParam())) {
      GTEST_SKIP() << "this CPU has no " << runtime::name(GetParam());
    }
  }
};

// Unit round-off of the activation type: the largest relative error of rounding to nearest.
template <typename Activation>
inline constexpr double kRoundoff = 0x1p-24;
template <>
inline constexpr double kRoundoff<bf16> = 0x1p-8;

// A test that runs once per Case, skipped by name where the CPU does not support the instruction
// set. Its body is with_type([&]<typename Activation>(Activation) { ... }).
class KernelTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!cpu_supports(GetParam().isa)) {
      GTEST_SKIP() << "this CPU has no " << runtime::name(GetParam().isa);
    }
  }
  template <typename Body>
  void with_type(Body&& body) {
    GetParam().is_bf16 ? body(bf16{}) : body(float{});
  }
  template <typename Activation>
  Ops<Activation> ops() const {
    return make_ops<Activation>(GetParam().isa);
  }
};

template <typename Activation>
std::vector<Activation> random_vector(std::size_t count, unsigned seed, float spread = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<Activation> values(count);
  for (Activation& value : values) value = runtime::from_float<Activation>(normal(generator));
  return values;
}

inline double as_double(float x) { return x; }
inline double as_double(bf16 x) { return runtime::to_float(x); }

// |got - want| <= relative |want| + absolute, element by element.
template <typename Activation>
void expect_close(const std::vector<Activation>& got, const std::vector<double>& want,
                  double relative, double absolute, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(as_double(got[i]) - want[i]), relative * std::abs(want[i]) + absolute)
        << what << " at " << i << ": got " << as_double(got[i]) << ", expected " << want[i];
  }
}

// Packed examples. Example b of the batch has index `first + b` in the global batch.
struct Examples {
  std::vector<std::int32_t> cu_seqlens = {0};
  std::vector<std::int32_t> example;       // [B]
  std::vector<std::int32_t> row_example;   // [T]
  std::vector<std::int32_t> row_position;  // [T]
  std::int64_t tokens() const { return cu_seqlens.back(); }
  std::int64_t size() const { return static_cast<std::int64_t>(example.size()); }
  std::int64_t longest() const {
    std::int64_t most = 0;
    for (std::size_t b = 0; b < example.size(); ++b) {
      most = std::max<std::int64_t>(most, cu_seqlens[b + 1] - cu_seqlens[b]);
    }
    return most;
  }
  RowIdentity identity(std::int64_t row = 0) const {
    return {row_example.data() + row, row_position.data() + row};
  }
};

inline Examples make_examples(const std::vector<std::int32_t>& lengths, std::int32_t first = 0) {
  Examples e;
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    e.example.push_back(first + static_cast<std::int32_t>(b));
    e.cu_seqlens.push_back(e.cu_seqlens.back() + lengths[b]);
    for (std::int32_t i = 0; i < lengths[b]; ++i) {
      e.row_example.push_back(e.example.back());
      e.row_position.push_back(i);
    }
  }
  return e;
}

inline Dropout make_dropout(double p, std::uint32_t site = 3) {
  Dropout dropout;
  dropout.seed = 0x1234567890abcdefu;
  dropout.step = 17;
  dropout.site = site;
  dropout.threshold = static_cast<std::uint32_t>(std::lround(p * 65536));
  dropout.scale = 65536.0f / static_cast<float>(65536 - dropout.threshold);
  return dropout;
}

}  // namespace tilewright::kernels::testing
