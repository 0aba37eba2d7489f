// The tables of the vector versions. Each is defined by one file (vector_avx2.cpp, ...) that
// compiles the same texts (*.inl) for one vector type under one set of flags.
#pragma once

#include "worker/kernels/loops.h"

namespace tilewright::kernels {

struct VectorLoops {
  Loops<float> fp32;
  Loops<bf16> half;
  ParameterLoops parameters;
};

extern const VectorLoops kAvx2Loops;
extern const VectorLoops kAvx512Loops;
extern const VectorLoops kAvx512Bf16Loops;

}  // namespace tilewright::kernels
