// The floating-point mode of the kernels.
#pragma once

namespace tilewright::runtime {

// Makes the calling thread read and write denormal numbers as zero (MXCSR bits DAZ and FTZ), as the
// bf16 instructions do in any mode. Each thread that computes calls it before its first kernel:
// AdamW's moments of word rows that no batch holds decay into denormals, whose arithmetic takes
// over a hundred cycles, and a thread in another mode would give other bits.
void flush_denormals();

}  // namespace tilewright::runtime
