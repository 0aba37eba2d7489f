#include "worker/runtime/cpu.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>

namespace tilewright::runtime {
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

// One CPU feature: a bit of a CPUID result (Intel SDM vol. 2, CPUID).
struct Feature {
  unsigned leaf = 0;  // 0: none
  unsigned subleaf = 0;
  unsigned Registers::*result = nullptr;
  int bit = 0;
};
constexpr Feature kHypervisor = {1, 0, &Registers::c, 31};
constexpr Feature kFma = {1, 0, &Registers::c, 12};
constexpr Feature kF16c = {1, 0, &Registers::c, 29};
constexpr Feature kAvx2 = {7, 0, &Registers::b, 5};
constexpr Feature kAvx512f = {7, 0, &Registers::b, 16};
constexpr Feature kAvx512dq = {7, 0, &Registers::b, 17};
constexpr Feature kAvx512bw = {7, 0, &Registers::b, 30};
constexpr Feature kAvx512vl = {7, 0, &Registers::b, 31};
constexpr Feature kAvx512Bf16 = {7, 1, &Registers::a, 5};
constexpr Feature kAmxBf16 = {7, 0, &Registers::d, 22};
constexpr Feature kAmxTile = {7, 0, &Registers::d, 24};

// Register state that the operating system must save, as bits of XCR0 (Intel SDM vol. 1, 13.3).
constexpr std::uint64_t kYmmState = 0x6;
constexpr std::uint64_t kZmmState = 0xe6;
constexpr std::uint64_t kTileState = 0x60000;

// One row per instruction set, in the order of Isa.
struct IsaRow {
  Isa isa;
  Isa base;  // must be supported too; the row lists only additional features
  std::array<Feature, 4> features;
  std::uint64_t state = 0;
  bool bf16 = false;  // see has_bf16()
};
constexpr IsaRow kIsaRows[] = {
    {Isa::kRef, Isa::kRef, {}},
    {Isa::kAvx2, Isa::kRef, {kAvx2, kFma, kF16c}, kYmmState},
    {Isa::kAvx512, Isa::kAvx2, {kAvx512f, kAvx512dq, kAvx512bw, kAvx512vl}, kZmmState},
    {Isa::kAvx512Bf16, Isa::kAvx512, {kAvx512Bf16}, 0, true},
    {Isa::kAmx, Isa::kAvx512Bf16, {kAmxBf16, kAmxTile}, kTileState, true},
};
static_assert(std::ranges::equal(kIsaRows, kAllIsas, {}, &IsaRow::isa));

bool is_set(const Feature& feature) {
  if (feature.leaf == 0) return true;
  return (cpuid(feature.leaf, feature.subleaf).*feature.result >> feature.bit & 1u) != 0;
}

std::uint64_t enabled_state() {
  if ((cpuid(1, 0).c & (1u << 27)) == 0) return 0;  // OSXSAVE
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

// Linux allows tile data (state component 18) only to a process that has requested it.
bool request_tile_data() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXtileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXtileData) == 0;
}

std::vector<Isa> detect_isas() {
  const std::uint64_t state = enabled_state();
  std::vector<Isa> isas = {Isa::kRef};
  const auto has = [&](Isa isa) { return std::find(isas.begin(), isas.end(), isa) != isas.end(); };
  for (const IsaRow& row : kIsaRows) {
    if (has(row.isa) || !has(row.base) || (state & row.state) != row.state) continue;
    if (!std::ranges::all_of(row.features, is_set)) continue;
    if ((row.state & kTileState) != 0 && !request_tile_data()) continue;
    isas.push_back(row.isa);
  }
  return isas;
}

// Returns the value of the first line `key: value` of a file in /proc, "unknown" if it has none.
std::string read_proc_field(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const auto start = line.find_first_not_of(" \t", line.find(':') + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return "unknown";
}

}  // namespace

std::string_view name(Isa isa) { return kInstructionSets[static_cast<std::size_t>(isa)].name; }

bool has_bf16(Isa isa) { return kIsaRows[static_cast<std::size_t>(isa)].bf16; }

std::optional<Isa> parse_isa(std::string_view name) {
  for (const InstructionSet& each : kInstructionSets) {
    if (each.name == name) return each.isa;
  }
  return std::nullopt;
}

CpuInfo detect_cpu() {
  CpuInfo info;
  info.model = read_proc_field("/proc/cpuinfo", "model name");
  info.isas = detect_isas();
  return info;
}

AmxSupport detect_amx() {
  AmxSupport support;
  const Registers vendor = cpuid(0, 0);
  support.intel = vendor.b == 0x756e6547 && vendor.d == 0x49656e69 && vendor.c == 0x6c65746e;
  const unsigned version = cpuid(1, 0).a;  // Intel SDM vol. 2, CPUID leaf 1
  support.family = static_cast<int>((version >> 8 & 0xf) + (version >> 20 & 0xff));
  support.model = static_cast<int>((version >> 4 & 0xf) + (version >> 12 & 0xf0));
  support.hypervisor = is_set(kHypervisor);
  support.cpuid = is_set(kAmxTile) && is_set(kAmxBf16);
  support.enabled =
      support.cpuid && (enabled_state() & kTileState) == kTileState && request_tile_data();
  return support;
}

std::string describe_missing_amx(const AmxSupport& support) {
  if (support.enabled) return "";
  if (support.cpuid) {
    return "the CPU has AMX, but the operating system does not permit its use; Linux 5.16 or later "
           "does";
  }
  // Sapphire Rapids, Emerald Rapids, Granite Rapids and Granite Rapids D (<asm/intel-family.h>).
  constexpr std::array kModels = {0x8f, 0xcf, 0xad, 0xae};
  const bool has_amx = support.intel && support.family == 6 &&
                       std::ranges::find(kModels, support.model) != kModels.end();
  if (!has_amx) return "";
  return support.hypervisor
             ? "the hypervisor hides AMX, which this CPU model has; a newer hypervisor or a CPU "
               "type that passes all features shows it"
             : "AMX is switched off, which this CPU model has; check the firmware's settings and "
               "the kernel's command line";
}

Result<Isa> choose_isa(const CpuInfo& cpu, std::string_view forced) {
  if (forced.empty()) return cpu.isas.back();
  const auto names = [](const auto& isas) {
    std::string list;
    for (const Isa isa : isas) list += (list.empty() ? "" : ", ") + std::string(name(isa));
    return list;
  };
  const std::optional<Isa> isa = parse_isa(forced);
  if (!isa) {
    return Error{ExitCode::kUsage, fmt::format("TILEWRIGHT_ISA: found \"{}\", expected one of {}",
                                               forced, names(kAllIsas))};
  }
  if (std::find(cpu.isas.begin(), cpu.isas.end(), *isa) == cpu.isas.end()) {
    return Error{ExitCode::kUnsupported,
                 fmt::format("TILEWRIGHT_ISA: found \"{}\", expected one of {}: this CPU ({}) "
                             "supports no other instruction set",
                             forced, names(cpu.isas), cpu.model)};
  }
  return *isa;
}

}  // namespace tilewright::runtime
