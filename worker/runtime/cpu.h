// Detects what this CPU supports and chooses the instruction set that the kernels use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/contract/instruction_sets.h"

namespace tilewright::runtime {

using tilewright::Isa;
using tilewright::kAllIsas;

// As in common/contract/instruction_sets.h.
std::string_view name(Isa isa);
std::optional<Isa> parse_isa(std::string_view name);

// Whether the instruction set multiplies bf16 numbers without widening them.
bool has_bf16(Isa isa);

struct CpuInfo {
  std::string model;      // "model name" in /proc/cpuinfo
  std::vector<Isa> isas;  // supported by the CPU and the operating system, slowest first
};

// Reads CPUID and /proc. On a CPU with AMX, requests permission to use tile data.
CpuInfo detect_cpu();

// What CPUID and the operating system say about AMX.
struct AmxSupport {
  bool intel = false;  // the vendor
  int family = 0;      // with the extended family, as in /proc/cpuinfo
  int model = 0;       // with the extended model
  bool hypervisor = false;
  bool cpuid = false;    // CPUID lists AMX-TILE and AMX-BF16
  bool enabled = false;  // the operating system saves tile data and permits its use
};
AmxSupport detect_amx();

// A message if the CPU has AMX but the process cannot use it; empty otherwise.
std::string describe_missing_amx(const AmxSupport& support);

// Returns the fastest ISA of `cpu`, or `forced` (the value of TILEWRIGHT_ISA; empty: not forced).
// Error kUsage if `forced` is no instruction set, kUnsupported if the CPU does not support it; the
// message lists those that are allowed.
Result<Isa> choose_isa(const CpuInfo& cpu, std::string_view forced);

}  // namespace tilewright::runtime
