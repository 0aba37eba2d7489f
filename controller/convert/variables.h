// Environment variables of PyTorch, oneCCL, Intel MPI and OpenMP that a native training does not
// need.
#pragma once

#include <string_view>

namespace tilewright::convert {

// Why the variable has no effect on a native training, or does harm; empty if it keeps its meaning
// or belongs to the user.
std::string_view why_not_needed(std::string_view variable);

}  // namespace tilewright::convert
