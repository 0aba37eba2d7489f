// The attention of AMX on emulated tiles, for CPUs with AVX512-BF16: its vector part needs them.

// Order matters: the vector type, then the code that uses it.
// clang-format off
#include "worker/kernels/gemm/amx_emulator.h"
#include "worker/kernels/isa_entries.h"
#include "worker/kernels/vector/vec_avx512.inl"
#include "worker/kernels/math/math.inl"
#include "worker/kernels/vector/philox.inl"
#include "worker/kernels/vector/attention_masks.inl"
#include "worker/kernels/vector/attention_head.inl"
#include "worker/kernels/vector/attention_amx.inl"
// clang-format on

namespace tilewright::kernels {
namespace {

constexpr KernelTable<bf16> make_emulator_table() {
  KernelTable<bf16> table;
  table.name = "amx emulator";
  set_attention_on_tiles<AmxEmulator>(table);
  return table;
}

}  // namespace

constinit const KernelTable<bf16> kAmxEmulatorAttention = make_emulator_table();

}  // namespace tilewright::kernels
