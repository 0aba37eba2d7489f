#include "worker/kernels/isa_table.h"

#include <oneapi/dnnl/dnnl_types.h>

#include "common/base/check.h"
#include "worker/kernels/isa_entries.h"

namespace tilewright::kernels {
namespace {

// In the order of Isa.
constinit const IsaRow kRows[] = {
    {Isa::kRef, &kRefKernels, {&kRefFloat}, {&kRefBf16}},
    {Isa::kAvx2, &kAvx2Kernels, {&kAvx2Float, dnnl_cpu_isa_avx2}, {&kAvx2Bf16}},
    {Isa::kAvx512,
     &kAvx512Kernels,
     {&kAvx512Float, dnnl_cpu_isa_avx512_core_vnni},
     {&kAvx512Widened, dnnl_cpu_isa_avx512_core_vnni}},
    {Isa::kAvx512Bf16,
     &kAvx512Bf16Kernels,
     {&kAvx512Float, dnnl_cpu_isa_avx512_core_bf16},
     {&kAvx512Bf16, dnnl_cpu_isa_avx512_core_bf16}},
    {Isa::kAmx,
     &kAmxKernels,
     {&kAvx512Float, dnnl_cpu_isa_avx512_core_amx},
     {&kAmx, dnnl_cpu_isa_avx512_core_amx}},
};
static_assert(std::size(kRows) == runtime::kAllIsas.size());

}  // namespace

const IsaRow& isa_row(Isa isa) {
  const IsaRow& row = kRows[static_cast<std::size_t>(isa)];
  TW_CHECK(row.isa == isa, "rows of the ISA table are not in the order of Isa");
  return row;
}

}  // namespace tilewright::kernels
