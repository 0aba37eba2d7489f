#include "worker/train/settings.h"

#include <gtest/gtest.h>

#include "common/base/result.h"

namespace tilewright::train {
namespace {

using runtime::Isa;

std::string refusal(bool bf16, Isa isa) {
  Settings settings;
  settings.onednn = true;
  settings.bf16 = bf16;
  try {
    check_gemm_backend(settings, isa);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUnsupported);
    return failure.what();
  }
  return "";
}

TEST(GemmBackend, OfOneDnnIsRefusedWhereItHasNoKernels) {
  EXPECT_EQ(refusal(true, Isa::kAvx2),
            "--gemm_backend=onednn: found bf16 on avx2, for which oneDNN has no kernels, expected "
            "--bf16=false, --gemm_backend=native or avx512 and up (TILEWRIGHT_ISA)");
  EXPECT_EQ(refusal(true, Isa::kRef),
            "--gemm_backend=onednn: found bf16 on ref, for which oneDNN has no kernels, expected "
            "--gemm_backend=native or avx512 and up (TILEWRIGHT_ISA)");
  EXPECT_EQ(refusal(false, Isa::kRef),
            "--gemm_backend=onednn: found fp32 on ref, for which oneDNN has no kernels, expected "
            "--gemm_backend=native or avx2 and up (TILEWRIGHT_ISA)");
}

TEST(GemmBackend, OfOneDnnIsTakenWhereItHasThem) {
  EXPECT_EQ(refusal(false, Isa::kAvx2), "");
  EXPECT_EQ(refusal(true, Isa::kAvx512), "");
  EXPECT_EQ(refusal(true, Isa::kAmx), "");
}

TEST(GemmBackend, OfOurOwnRunsEverywhere) {
  Settings settings;
  settings.onednn = false;
  settings.bf16 = true;
  check_gemm_backend(settings, Isa::kRef);
}

TEST(Fingerprint, TellsAPaddedTrainingFromAPackedOne) {
  Settings packed;
  Settings padded;
  padded.pad_to_max_length = true;
  EXPECT_NE(fingerprint(packed), fingerprint(padded));
}

}  // namespace
}  // namespace tilewright::train
