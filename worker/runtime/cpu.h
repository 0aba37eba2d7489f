// Detects what this CPU supports and chooses the instruction set that the kernels use.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace tilewright::runtime {

// The instruction sets that kernels exist for, slowest first. cpu.cpp holds the name and the
// required CPU features of each, worker/kernels/isa_table.cpp its kernels.
enum class Isa { kRef, kAvx2, kAvx512, kAvx512Bf16, kAmx };
inline constexpr std::array kAllIsas = {Isa::kRef, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16,
                                        Isa::kAmx};

// "ref", "avx2", "avx512", "avx512_bf16", "amx": the values of TILEWRIGHT_ISA.
std::string_view name(Isa isa);
std::optional<Isa> parse_isa(std::string_view name);

// Whether the instruction set multiplies bf16 numbers without widening them.
bool has_bf16(Isa isa);

struct CpuInfo {
  std::string model;         // "model name" in /proc/cpuinfo
  std::vector<Isa> isas;     // supported by the CPU and the operating system, slowest first
  std::string cpus_allowed;  // affinity mask in the kernel's list format: "0-3,8"
  int physical_cores = 1;    // in the affinity mask
  int usable_cpus = 1;       // CPUs in the affinity mask, at most the cgroup quota rounded up
};

// Reads CPUID, /proc, /sys and the cgroup. On a CPU with AMX, requests permission to use tile data.
CpuInfo detect_cpu();

// Returns the fastest ISA of `cpu`, or `forced` (the value of TILEWRIGHT_ISA; empty: not forced).
// Error kUnsupported if `forced` is unknown or the CPU does not support it; the message lists the
// supported ones.
Result<Isa> choose_isa(const CpuInfo& cpu, std::string_view forced);

}  // namespace tilewright::runtime
