#include "worker/runtime/cpu.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <thread>

#include "worker/runtime/memory.h"

namespace tilewright::runtime {
namespace {

CpuInfo made_cpu() {
  CpuInfo cpu;
  cpu.model = "Made CPU";
  cpu.isas = {Isa::kRef, Isa::kAvx2};
  return cpu;
}

TEST(Cpu, EveryCpuRunsTheReference) { EXPECT_EQ(detect_cpu().isas.front(), Isa::kRef); }

// The mask of a thread of the test's own, so that the others keep theirs.
TEST(Cpu, SaysWhichCpusItIsBoundTo) {
  std::thread([] {
    const int cpu = sched_getcpu();
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(cpu, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
    const CpuInfo info = detect_cpu();
    EXPECT_EQ(info.allowed, std::to_string(cpu));
    EXPECT_EQ(info.usable_cpus, 1);
    EXPECT_EQ(info.physical_cores, 1);
  }).join();
}

TEST(Cpu, NamesAreReadBackAsWritten) {
  for (const Isa isa : {Isa::kRef, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    EXPECT_EQ(parse_isa(name(isa)), isa);
  }
  EXPECT_EQ(parse_isa("sse"), std::nullopt);
}

TEST(ChooseIsa, TakesTheFastestUnlessOneIsForced) {
  EXPECT_EQ(choose_isa(made_cpu(), "").value(), Isa::kAvx2);
  EXPECT_EQ(choose_isa(made_cpu(), "ref").value(), Isa::kRef);
}

TEST(ChooseIsa, RefusesWhatTheCpuLacksAndSaysWhatItHas) {
  const auto refused = choose_isa(made_cpu(), "amx");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ExitCode::kUnsupported);
  EXPECT_EQ(refused.error().message, "TILEWRIGHT_ISA=amx: this CPU (Made CPU) has ref, avx2 only");
  EXPECT_FALSE(choose_isa(made_cpu(), "neon").ok());
}

TEST(Memory, AMeasuringArenaCountsWhatARealOneThenHolds) {
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
  EXPECT_DEATH(arena.take<float>(1), "arena of 512 bytes: 512 used, 64 wanted");
  arena.reset();
  EXPECT_NE(arena.take<float>(1), nullptr);
}

TEST(Memory, SomeIsAvailable) { EXPECT_GT(available_memory(), 1u << 20); }

}  // namespace
}  // namespace tilewright::runtime
