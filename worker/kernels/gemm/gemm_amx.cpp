// bf16 linear layers with AMX: TDPBF16PS on tiles of 16 x 16 accumulators.
#include "worker/kernels/gemm/amx_engine.h"
#include "worker/kernels/gemm/amx_tiles.h"
#include "worker/kernels/gemm/vectors_avx512.h"
#include "worker/kernels/isa_entries.h"

namespace tilewright::kernels {

constinit const Engine<bf16> kAmx = make_amx_engine<HardwareTiles, Packing512>("amx 32x32");

}  // namespace tilewright::kernels
