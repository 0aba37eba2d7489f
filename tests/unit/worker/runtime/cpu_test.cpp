#include "worker/runtime/cpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tilewright::runtime {
namespace {

using ::testing::HasSubstr;

CpuInfo fake_cpu() {
  CpuInfo cpu;
  cpu.model = "Test CPU";
  cpu.isas = {Isa::kRef, Isa::kAvx2};
  return cpu;
}

TEST(Cpu, EveryCpuRunsTheReference) { EXPECT_EQ(detect_cpu().isas.front(), Isa::kRef); }

TEST(Cpu, HasAmxIfTheKernelsOfAmxRun) {
  const AmxSupport support = detect_amx();
  const std::vector<Isa> isas = detect_cpu().isas;
  EXPECT_EQ(support.enabled, std::ranges::find(isas, Isa::kAmx) != isas.end());
  if (support.enabled) {
    EXPECT_TRUE(support.cpuid);
  }
}

TEST(Cpu, SaysWhyAmxIsMissing) {
  AmxSupport cpu = {.intel = true, .family = 6, .model = 0x8f, .cpuid = true, .enabled = true};
  EXPECT_EQ(describe_missing_amx(cpu), "");
  cpu.enabled = false;
  EXPECT_THAT(describe_missing_amx(cpu), HasSubstr("the operating system does not permit its use"));
  cpu.cpuid = false;
  // Sapphire, Emerald and Granite Rapids.
  for (const int model : {143, 207, 173, 174}) {
    cpu.model = model;
    cpu.hypervisor = true;
    EXPECT_THAT(describe_missing_amx(cpu), HasSubstr("the hypervisor hides AMX")) << model;
    cpu.hypervisor = false;
    EXPECT_THAT(describe_missing_amx(cpu), HasSubstr("AMX is switched off")) << model;
  }
  cpu.hypervisor = true;
  cpu.model = 106;  // Ice Lake
  EXPECT_EQ(describe_missing_amx(cpu), "");
  EXPECT_EQ(describe_missing_amx({.family = 6, .model = 143}), "") << "another vendor";
  EXPECT_EQ(describe_missing_amx({.intel = true, .family = 15, .model = 143}), "");
}

TEST(Cpu, IsaNamesRoundTrip) {
  for (const Isa isa : kAllIsas) {
    EXPECT_EQ(parse_isa(name(isa)), isa);
  }
  EXPECT_EQ(parse_isa("sse"), std::nullopt);
}

TEST(Cpu, HasBf16InstructionsFromAvx512Bf16On) {
  for (const Isa isa : {Isa::kRef, Isa::kAvx2, Isa::kAvx512}) EXPECT_FALSE(has_bf16(isa));
  for (const Isa isa : {Isa::kAvx512Bf16, Isa::kAmx}) EXPECT_TRUE(has_bf16(isa));
}

TEST(ChooseIsa, TakesTheFastestUnlessOneIsForced) {
  EXPECT_EQ(choose_isa(fake_cpu(), "").value(), Isa::kAvx2);
  EXPECT_EQ(choose_isa(fake_cpu(), "ref").value(), Isa::kRef);
}

TEST(ChooseIsa, RejectsAnUnsupportedIsaAndListsTheSupported) {
  const auto refused = choose_isa(fake_cpu(), "amx");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ExitCode::kUnsupported);
  EXPECT_EQ(
      refused.error().message,
      "TILEWRIGHT_ISA: found \"amx\", expected one of ref, avx2: this CPU (Test CPU) supports "
      "no other instruction set");
  const auto unknown = choose_isa(fake_cpu(), "neon");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ExitCode::kUsage);
  std::string all;
  for (const Isa isa : kAllIsas) all += (all.empty() ? "" : ", ") + std::string(name(isa));
  EXPECT_EQ(unknown.error().message, "TILEWRIGHT_ISA: found \"neon\", expected one of " + all);
}

}  // namespace
}  // namespace tilewright::runtime
