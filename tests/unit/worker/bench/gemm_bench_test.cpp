#include "worker/bench/gemm_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/result.h"

namespace tilewright::bench {
namespace {

TEST(GemmBench, TimesEveryOperationOfEveryShapeAndThePeak) {
  GemmBenchOptions options;
  options.isa = runtime::detect_cpu().isas.back();
  options.threads = {1, 2};
  options.shapes = {{64, 96, 48}, {33, 30, 2}};
  options.repetitions = 1;
  const GemmBench bench = bench_gemm(options);
  ASSERT_EQ(bench.rows.size(), 2u * 2u * 3u);
  for (const GemmBenchRow& row : bench.rows) {
    EXPECT_GT(row.gflops, 0);
    EXPECT_GT(row.peak_gflops, 0);
  }
  const auto json = nlohmann::json::parse(bench.to_json());
  EXPECT_EQ(json["gemm"].size(), bench.rows.size());
  EXPECT_EQ(json["gemm"][2]["operation"], "dW");
  EXPECT_THAT(bench.to_text(), ::testing::HasSubstr("33x30x2"));
}

TEST(ParseGemmShape, ReadsRowsKAndN) {
  const GemmShape shape = parse_gemm_shape("1700x384x65536");
  EXPECT_EQ(shape.rows, 1700);
  EXPECT_EQ(shape.k, 384);
  EXPECT_EQ(shape.n, 65536);
}

TEST(ParseGemmShape, SaysWhatItFound) {
  for (const char* text : {"", "1x2", "1x2x", "1x2x3x4", "0x2x3", "1x2x65537", "ax2x3", "1,2,3"}) {
    try {
      parse_gemm_shape(text);
      ADD_FAILURE() << text;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kUsage);
      EXPECT_EQ(std::string(failure.what()), "--shapes: found \"" + std::string(text) +
                                                 "\", expected ROWSxKxN, each from 1 to 65536");
    }
  }
}

TEST(GemmBench, OmitsOneDnnWhereItHasNoKernels) {
  GemmBenchOptions options;
  options.isa = runtime::Isa::kRef;
  options.threads = {1};
  options.shapes = {{5, 6, 7}};
  options.repetitions = 1;
  for (const GemmBenchRow& row : bench_gemm(options).rows) EXPECT_EQ(row.onednn_gflops, 0);
}

}  // namespace
}  // namespace tilewright::bench
