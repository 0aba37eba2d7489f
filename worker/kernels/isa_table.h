// The table of instruction sets: one row per ISA with its kernels, its GEMM engines and its peak
// measurement. All code outside the kernels of one ISA reaches them through a row.
#pragma once

#include "worker/kernels/gemm/engine.h"
#include "worker/kernels/kernel_table.h"

namespace tilewright::kernels {

inline constexpr int kNoOneDnn = -1;

// The GEMM backends for the linear layers of one activation type.
template <typename Activation>
struct GemmRow {
  const Engine<Activation>* engine = nullptr;  // its `peak` measures the ISA's peak
  int onednn_isa = kNoOneDnn;  // dnnl_cpu_isa_t to limit oneDNN to; kNoOneDnn: it has no kernels
};

struct IsaRow {
  Isa isa;
  const KernelTables* kernels;
  GemmRow<float> gemm_fp32;
  GemmRow<bf16> gemm_bf16;

  template <typename Activation>
  const GemmRow<Activation>& gemm() const;
};
template <>
inline const GemmRow<float>& IsaRow::gemm<float>() const {
  return gemm_fp32;
}
template <>
inline const GemmRow<bf16>& IsaRow::gemm<bf16>() const {
  return gemm_bf16;
}

const IsaRow& isa_row(Isa isa);

}  // namespace tilewright::kernels
