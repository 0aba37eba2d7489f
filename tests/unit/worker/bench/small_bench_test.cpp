// Runs each benchmark on a small shape and checks how its figures are related.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "worker/bench/adamw_bench.h"
#include "worker/bench/exactness_bench.h"
#include "worker/bench/layers_bench.h"
#include "worker/bench/peak_bench.h"
#include "worker/bench/profile_bench.h"
#include "worker/bench/step_bench.h"
#include "worker/runtime/cpu.h"

namespace tilewright::bench {
namespace {

using ::testing::Contains;

Workload small_workload() { return {.model = "minilm", .lengths = {7, 12}, .threads = 1}; }

runtime::Isa fastest() { return runtime::detect_cpu().isas.back(); }

std::vector<std::string> names(const std::vector<KernelTime>& kernels) {
  std::vector<std::string> names;
  names.reserve(kernels.size());
  for (const KernelTime& kernel : kernels) names.push_back(kernel.kernel);
  return names;
}

double total(const std::vector<KernelTime>& kernels) {
  double seconds = 0;
  for (const KernelTime& kernel : kernels) seconds += kernel.seconds;
  return seconds;
}

TEST(StepBench, ReportsRatesOfTheMedianStep) {
  const StepBench bench = bench_step({.workload = small_workload(), .steps = 3}, fastest());
  EXPECT_EQ(bench.seconds.size(), 3u);
  EXPECT_DOUBLE_EQ(bench.tokens_per_second, 19 / bench.median);
  EXPECT_LE(bench.gflops, bench.peak_gflops);
  EXPECT_EQ(nlohmann::json::parse(bench.to_json())["tokens"], 19);
}

TEST(ProfileBench, ExplainsNoMoreThanTheWholeStep) {
  const ProfileBench bench = bench_profile({.workload = small_workload(), .steps = 6}, fastest());
  EXPECT_LE(total(bench.profile.kernels), bench.profile.seconds);
  EXPECT_TRUE(bench.overhead) << "six pairs have an interval";
  EXPECT_THAT(names(bench.profile.kernels), Contains("attention_backward"));
  EXPECT_THAT(names(bench.profile.kernels), Contains("adamw"));
  const auto json = nlohmann::json::parse(bench.to_json());
  EXPECT_EQ(json["kernels"].back()["kernel"], "other");
}

TEST(LayersBench, SeparatesForwardAndBackward) {
  const LayersBench bench =
      bench_layers({.workload = small_workload(), .repetitions = 2}, fastest());
  EXPECT_LE(total(bench.forward.kernels), bench.forward.seconds);
  EXPECT_LE(total(bench.backward.kernels), bench.backward.seconds);
  // Four linear layers with their shapes.
  EXPECT_EQ(std::ranges::count(names(bench.forward.kernels), "linear forward"), 4);
  EXPECT_EQ(std::ranges::count(names(bench.backward.kernels), "linear dX"), 4);
  EXPECT_EQ(std::ranges::count(names(bench.backward.kernels), "linear dW"), 4);
  EXPECT_GT(nlohmann::json::parse(bench.to_json())["gflops"], 0);
}

TEST(ExactnessBench, ComparesAsManyStepsOfEachKind) {
  const ExactnessBench bench =
      bench_exactness({.workload = small_workload(), .pairs = 6}, fastest());
  EXPECT_EQ(bench.times.a.size(), 6u);
  EXPECT_EQ(bench.times.b.size(), 6u);
  ASSERT_TRUE(bench.ratio);
  EXPECT_LE(bench.ratio->low, bench.ratio->high);
  const auto json = nlohmann::json::parse(bench.to_json());
  EXPECT_EQ(json["median_ratio"], bench.ratio->median);
}

TEST(AdamWBench, IncludesPackingAndTheNorm) {
  const AdamWBench bench = bench_adamw({.workload = small_workload(), .repetitions = 1}, fastest());
  EXPECT_THAT(names(bench.profile.kernels),
              ::testing::UnorderedElementsAre("adamw", "pack_weight", "sum_of_squares"));
  // 22.7 million parameters, each in three vectors.
  EXPECT_GT(bench.working_set_bytes, 22e6 * 12);
  EXPECT_GT(nlohmann::json::parse(bench.to_json())["gigabytes_per_second"], 0);
}

TEST(PeakBench, MeasuresEachInstructionSetAndType) {
  const std::vector<runtime::Isa> isas = runtime::detect_cpu().isas;
  const PeakBench bench =
      bench_peak({.isas = isas, .threads = {1, 2}, .copied_bytes = 4096, .repetitions = 1});
  EXPECT_EQ(bench.rows.size(), isas.size() * 2 * 2);
  for (const PeakBenchRow& row : bench.rows) EXPECT_GT(row.gflops, 0) << row.isa;
  EXPECT_EQ(bench.copies.size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(bench.to_json())["peak"].size(), bench.rows.size());
}

}  // namespace
}  // namespace tilewright::bench
