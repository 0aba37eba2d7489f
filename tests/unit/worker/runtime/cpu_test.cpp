#include "worker/runtime/cpu.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <thread>

#include "worker/runtime/memory.h"

namespace tilewright::runtime {
namespace {

CpuInfo fake_cpu() {
  CpuInfo cpu;
  cpu.model = "Test CPU";
  cpu.isas = {Isa::kRef, Isa::kAvx2};
  return cpu;
}

TEST(Cpu, EveryCpuRunsTheReference) { EXPECT_EQ(detect_cpu().isas.front(), Isa::kRef); }

// Sets the affinity in a separate thread, so that it does not affect other tests.
TEST(Cpu, ReportsItsCpuAffinity) {
  std::thread([] {
    const int cpu = sched_getcpu();
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(cpu, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
    const CpuInfo info = detect_cpu();
    EXPECT_EQ(info.cpus_allowed, std::to_string(cpu));
    EXPECT_EQ(info.usable_cpus, 1);
    EXPECT_EQ(info.physical_cores, 1);
  }).join();
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
  std::string all;
  for (const Isa isa : kAllIsas) all += (all.empty() ? "" : ", ") + std::string(name(isa));
  EXPECT_EQ(unknown.error().message, "TILEWRIGHT_ISA: found \"neon\", expected one of " + all);
}

TEST(Memory, AMeasuringArenaReportsTheSizeOfARealArena) {
  const auto lay_out = [](Arena& arena) {
    arena.take<float>(100);
    return arena.take<double>(3);
  };
  Arena measure;
  EXPECT_EQ(lay_out(measure), nullptr);
  Arena arena(measure.used());
  const double* last = lay_out(arena);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(last) % 64, 0u);
  EXPECT_EQ(arena.used(), measure.used());
  EXPECT_DEATH(arena.take<float>(1), "arena of 512 bytes: 512 used, 64 requested");
  arena.reset();
  EXPECT_NE(arena.take<float>(1), nullptr);
}

TEST(Memory, AvailableMemoryIsPositive) { EXPECT_GT(available_memory(), 1u << 20); }

}  // namespace
}  // namespace tilewright::runtime
