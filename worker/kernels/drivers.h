// The kernels of ops.h above their single-threaded loops: which rows, columns, ids or heads a
// thread takes, and the tree of shards. A kernel is a plain function, so each is a template over
// the instruction set whose loops it calls.
#pragma once

#include "worker/kernels/loops.h"

namespace tilewright::kernels {

// One fill function for each file of drivers.
template <typename T, Isa kIsa>
void fill_row_drivers(Ops<T>& ops);
template <typename T, Isa kIsa>
void fill_attention_drivers(Ops<T>& ops);
// Needs fp32 alone, but stands in Ops<T>.
template <typename T, Isa kIsa>
void fill_shard_drivers(Ops<T>& ops);
template <Isa kIsa>
void fill_shard_drivers(ParameterOps& ops);

// "ref", "avx2", ...: the name under which the log shows a kernel of these loops.
const char* loops_name(Isa isa);

}  // namespace tilewright::kernels

// Instantiates `macro(T, isa)` for every table of Ops.
#define TW_FOR_EACH_TABLE(macro)                                                          \
  macro(float, Isa::kRef) macro(float, Isa::kAvx2) macro(float, Isa::kAvx512)             \
      macro(float, Isa::kAvx512Bf16) macro(float, Isa::kAmx) macro(bf16, Isa::kRef)       \
          macro(bf16, Isa::kAvx2) macro(bf16, Isa::kAvx512) macro(bf16, Isa::kAvx512Bf16) \
              macro(bf16, Isa::kAmx)
