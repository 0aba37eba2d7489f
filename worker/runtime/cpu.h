// What this CPU can do, and which instruction set the kernels will therefore use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace tilewright::runtime {

// In rising order of speed. kAvx512Bf16 needs AVX512-BF16 with BW, VL and DQ; kAmx needs that and
// AMX-BF16 with the kernel's permission to use tile data.
enum class Isa { kRef, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// "ref", "avx2", "avx512", "avx512_bf16", "amx": what TILEWRIGHT_ISA takes.
std::string_view name(Isa isa);
std::optional<Isa> parse_isa(std::string_view text);

struct CpuInfo {
  std::string model;       // "model name" of /proc/cpuinfo
  std::vector<Isa> isas;   // all that this CPU (and operating system) can run, rising
  std::string allowed;     // the affinity mask, as the kernel lists it: "0-3,8"
  int physical_cores = 1;  // of the cores this process may run on
  int usable_cpus = 1;     // CPUs of the affinity mask, bounded by the cgroup's quota, rounded up
};

// Reads CPUID and /proc; asks the operating system once for AMX tile data where the CPU has it.
CpuInfo detect_cpu();

// The best ISA of `cpu`, or `forced` (the value of TILEWRIGHT_ISA; empty = none). A name that is
// unknown or an ISA that the CPU lacks is an Error with kUnsupported that names what it has.
Result<Isa> choose_isa(const CpuInfo& cpu, std::string_view forced);

}  // namespace tilewright::runtime
