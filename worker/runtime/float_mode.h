// The floating-point mode of the kernels.
#pragma once

namespace tilewright::runtime {

// Makes the calling thread read and write denormal numbers as zero (MXCSR bits DAZ and FTZ), as the
// bf16 instructions do in any mode. Each thread that computes calls it before its first kernel:
// AdamW's moments of word rows that no batch holds decay into denormals, whose arithmetic takes
// over a hundred cycles, and a thread in another mode would give other bits.
void flush_denormals();

// While it lives, the calling thread computes with denormal numbers, as IEEE 754 and NumPy do. Only
// on the stack.
class DenormalsScope {
 public:
  DenormalsScope();
  ~DenormalsScope();
  DenormalsScope(const DenormalsScope&) = delete;
  DenormalsScope& operator=(const DenormalsScope&) = delete;

 private:
  unsigned before_;  // MXCSR
};

}  // namespace tilewright::runtime
