// The AMX kernels on the software twin.
#include "worker/kernels/gemm/amx_twin.h"

#include "worker/kernels/gemm/amx_blocks.h"

namespace tilewright::kernels {

constinit const Engine<bf16> kAmxTwin = make_amx_engine<AmxTwin, PlainRows>("amx twin 32x32");

}  // namespace tilewright::kernels
