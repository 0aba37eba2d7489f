#include "worker/runtime/cpu.h"

#include <cpuid.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>

namespace tilewright::runtime {
namespace {

constexpr std::string_view kNames[] = {"ref", "avx2", "avx512", "avx512_bf16", "amx"};

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

// XCR0: which register files the operating system saves (Intel SDM vol. 1, 13.3).
std::uint64_t enabled_state() {
  if ((cpuid(1, 0).c & (1u << 27)) == 0) return 0;  // OSXSAVE
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

// Linux gives tile data (state component 18) to a process that asks for it once.
bool request_tile_data() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXtileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXtileData) == 0;
}

std::vector<Isa> detect_isas() {
  std::vector<Isa> isas = {Isa::kRef};
  const Registers basic = cpuid(1, 0);
  const Registers seven = cpuid(7, 0);
  const Registers seven_one = cpuid(7, 1);
  const std::uint64_t state = enabled_state();
  const auto bit = [](unsigned word, int n) { return (word >> n & 1u) != 0; };
  const bool ymm = (state & 0x6) == 0x6;
  const bool zmm = (state & 0xe6) == 0xe6;
  if (!(ymm && bit(seven.b, 5) && bit(basic.c, 12) && bit(basic.c, 29))) return isas;
  isas.push_back(Isa::kAvx2);  // AVX2, FMA, F16C
  const bool foundation =
      bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 30) && bit(seven.b, 31);
  if (!(zmm && foundation)) return isas;
  isas.push_back(Isa::kAvx512);  // F, DQ, BW, VL
  if (!bit(seven_one.a, 5)) return isas;
  isas.push_back(Isa::kAvx512Bf16);
  if (bit(seven.d, 22) && bit(seven.d, 24) && (state & 0x60000) == 0x60000 && request_tile_data()) {
    isas.push_back(Isa::kAmx);  // AMX-BF16, AMX-TILE
  }
  return isas;
}

// The value of the first line `key: value` of one of /proc's files; "unknown" without one.
std::string value_in(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const auto start = line.find_first_not_of(" \t", line.find(':') + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return "unknown";
}

// CPUs the cgroup's quota pays for (v2, then v1); infinity without a quota.
double quota_cpus() {
  double quota = -1;
  double period = 0;
  std::string first;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> first >> period && first != "max") {
    quota = std::atof(first.c_str());
  } else {
    std::ifstream q("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    std::ifstream p("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (!(q >> quota && p >> period)) quota = -1;
  }
  return quota > 0 && period > 0 ? quota / period : INFINITY;
}

// Hyper-threads share the matrix units, so one thread a core is what the kernels want.
int count_physical_cores(const cpu_set_t& mask) {
  std::set<std::string> siblings;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    std::ifstream in(
        fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    std::string list;
    siblings.insert(in >> list ? list : fmt::format("cpu{}", cpu));
  }
  return std::max<int>(1, static_cast<int>(siblings.size()));
}

}  // namespace

std::string_view name(Isa isa) { return kNames[static_cast<int>(isa)]; }

std::optional<Isa> parse_isa(std::string_view text) {
  for (int i = 0; i < 5; ++i) {
    if (kNames[i] == text) return static_cast<Isa>(i);
  }
  return std::nullopt;
}

CpuInfo detect_cpu() {
  CpuInfo info;
  info.model = value_in("/proc/cpuinfo", "model name");
  info.allowed = value_in("/proc/thread-self/status", "Cpus_allowed_list");
  info.isas = detect_isas();
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int usable = 1;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
    usable = CPU_COUNT(&mask);
    info.physical_cores = count_physical_cores(mask);
  }
  const double quota = std::ceil(quota_cpus());
  info.usable_cpus = std::max(1, quota < usable ? static_cast<int>(quota) : usable);
  return info;
}

Result<Isa> choose_isa(const CpuInfo& cpu, std::string_view forced) {
  if (forced.empty()) return cpu.isas.back();
  std::string has;
  for (const Isa isa : cpu.isas) has += (has.empty() ? "" : ", ") + std::string(name(isa));
  const std::optional<Isa> isa = parse_isa(forced);
  if (!isa) {
    return Error{
        ExitCode::kUnsupported,
        fmt::format("TILEWRIGHT_ISA={} is not one of ref, avx2, avx512, avx512_bf16, amx", forced)};
  }
  if (std::find(cpu.isas.begin(), cpu.isas.end(), *isa) == cpu.isas.end()) {
    return Error{ExitCode::kUnsupported, fmt::format("TILEWRIGHT_ISA={}: this CPU ({}) has {} only",
                                                     forced, cpu.model, has)};
  }
  return *isa;
}

}  // namespace tilewright::runtime
