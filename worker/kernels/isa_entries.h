// Declares the entry points of each instruction set. Most are defined in files compiled with the
// flags of one ISA, so this header holds forward declarations only and no inline code.
#pragma once

#include "worker/runtime/bf16.h"

namespace tilewright::kernels {

template <typename Element>
struct Engine;
template <typename Activation>
struct KernelTable;
struct KernelTables;

// Linear layers: gemm/ref.cpp, gemm/gemm_<isa>.cpp.
extern const Engine<float> kRefFloat;
extern const Engine<runtime::bf16> kRefBf16;
extern const Engine<float> kAvx2Float;
extern const Engine<float> kAvx512Float;
extern const Engine<runtime::bf16> kAvx2Bf16;
extern const Engine<runtime::bf16> kAvx512Widened;
extern const Engine<runtime::bf16> kAvx512Bf16;
extern const Engine<runtime::bf16> kAmx;
extern const Engine<runtime::bf16> kAmxEmulator;  // AMX kernels on tiles emulated in plain C++

// The other kernels: ref/ref.cpp, vector/vector_<isa>.cpp.
extern const KernelTables kRefKernels;
extern const KernelTables kAvx2Kernels;
extern const KernelTables kAvx512Kernels;
extern const KernelTables kAvx512Bf16Kernels;
extern const KernelTables kAmxKernels;
// Only attention: the AMX kernels on tiles emulated in plain C++, for CPUs with AVX512-BF16.
extern const KernelTable<runtime::bf16> kAmxEmulatorAttention;

}  // namespace tilewright::kernels
