// The precision of activations or of sums.
#pragma once

#include <string_view>

namespace tilewright::runtime {

enum class Precision { kFp32, kBf16 };

constexpr std::string_view name(Precision precision) {
  return precision == Precision::kBf16 ? "bf16" : "fp32";
}

}  // namespace tilewright::runtime
