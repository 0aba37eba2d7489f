// The instruction sets (ISAs) that kernels exist for. worker/runtime/cpu.cpp has the CPU features
// that each requires, worker/kernels/isa_table.cpp its kernels.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace tilewright {

// Slowest first.
enum class Isa { kRef, kAvx2, kAvx512, kAvx512Bf16, kAmx };

struct InstructionSet {
  Isa isa;
  std::string_view name;  // the value of TILEWRIGHT_ISA
  // The label by which node feature discovery reports it
  // (https://kubernetes-sigs.github.io/node-feature-discovery, feature "cpu-cpuid"); empty: none.
  std::string_view node_label = {};
};

// In the order of Isa.
inline constexpr InstructionSet kInstructionSets[] = {
    {Isa::kRef, "ref"},
    {Isa::kAvx2, "avx2", "feature.node.kubernetes.io/cpu-cpuid.AVX2"},
    {Isa::kAvx512, "avx512", "feature.node.kubernetes.io/cpu-cpuid.AVX512BW"},
    {Isa::kAvx512Bf16, "avx512_bf16", "feature.node.kubernetes.io/cpu-cpuid.AVX512BF16"},
    {Isa::kAmx, "amx", "feature.node.kubernetes.io/cpu-cpuid.AMXBF16"},
};

// All values of Isa, in its order.
inline constexpr auto kAllIsas = [] {
  std::array<Isa, std::size(kInstructionSets)> isas{};
  for (std::size_t i = 0; i < isas.size(); ++i) isas[i] = kInstructionSets[i].isa;
  return isas;
}();

}  // namespace tilewright
