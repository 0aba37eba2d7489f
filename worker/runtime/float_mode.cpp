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

DenormalsScope::DenormalsScope() : before_(__builtin_ia32_stmxcsr()) {
  __builtin_ia32_ldmxcsr(before_ & ~(kDenormalsAreZero | kFlushToZero));
}

DenormalsScope::~DenormalsScope() { __builtin_ia32_ldmxcsr(before_); }

}  // namespace tilewright::runtime
