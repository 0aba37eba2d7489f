#include "worker/runtime/float_mode.h"

namespace tilewright::runtime {
namespace {

// Bits of MXCSR (Intel SDM, volume 1, section 10.2.3).
constexpr unsigned kDenormalsAreZero = 1U << 6;
constexpr unsigned kFlushToZero = 1U << 15;

}  // namespace

void flush_denormals() {
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | kDenormalsAreZero | kFlushToZero);
}

}  // namespace tilewright::runtime
