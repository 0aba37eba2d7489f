#include "worker/train/settings.h"

#include <gtest/gtest.h>

#include "common/base/result.h"

namespace tilewright::train {
namespace {

using runtime::Isa;

std::string refusal(bool bf16, Isa isa) {
  Settings settings;
  settings.gemm_backend = "onednn";
  settings.bf16 = bf16;
  try {
    check_gemm_backend(settings, isa);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUnsupported);
    return failure.what();
  }
  return "";
}

TEST(GemmBackend, OneDnnIsRefusedIfItHasNoKernels) {
  EXPECT_EQ(refusal(true, Isa::kAvx2),
            "--gemm_backend=onednn: found bf16 on avx2, for which oneDNN has no kernels, expected "
            "--bf16=false, --gemm_backend=native or TILEWRIGHT_ISA=avx512 or above");
  EXPECT_EQ(refusal(true, Isa::kRef),
            "--gemm_backend=onednn: found bf16 on ref, for which oneDNN has no kernels, expected "
            "--gemm_backend=native or TILEWRIGHT_ISA=avx512 or above");
  EXPECT_EQ(refusal(false, Isa::kRef),
            "--gemm_backend=onednn: found fp32 on ref, for which oneDNN has no kernels, expected "
            "--gemm_backend=native or TILEWRIGHT_ISA=avx2 or above");
}

TEST(GemmBackend, OneDnnIsAcceptedIfItHasKernels) {
  EXPECT_EQ(refusal(false, Isa::kAvx2), "");
  EXPECT_EQ(refusal(true, Isa::kAvx512), "");
  EXPECT_EQ(refusal(true, Isa::kAmx), "");
}

TEST(GemmBackend, NativeRunsEverywhere) {
  Settings settings;
  settings.gemm_backend = "native";
  settings.bf16 = true;
  check_gemm_backend(settings, Isa::kRef);
}

TEST(Fingerprint, DiffersBetweenPaddedAndPackedTraining) {
  Settings packed;
  Settings padded;
  padded.pad_to_max_length = true;
  EXPECT_NE(fingerprint(packed), fingerprint(padded));
}

}  // namespace
}  // namespace tilewright::train
