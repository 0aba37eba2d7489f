// The AMX kernels on the emulator.
#include "worker/kernels/gemm/amx_emulator.h"

#include "worker/kernels/gemm/amx_engine.h"
#include "worker/kernels/isa_entries.h"

namespace tilewright::kernels {

constinit const Engine<bf16> kAmxEmulator =
    make_amx_engine<AmxEmulator, PortablePacking>("amx emulator 32x32");

}  // namespace tilewright::kernels
