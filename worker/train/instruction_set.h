// Which instruction sets a training may use. Kernels of different instruction sets round
// differently, so an exact training keeps the one of its first step.
#pragma once

#include <vector>

#include "worker/runtime/cpu.h"
#include "worker/train/job.h"

namespace tilewright::train {

// Returns those of `isas` (of this process, slowest first) with which the training can continue: if
// it is exact and has a checkpoint, only that of the checkpoint. Throws Failure(kUnsupported) that
// names the checkpoint if none is left.
std::vector<runtime::Isa> usable_isas(const Job& job, const std::vector<runtime::Isa>& isas);

}  // namespace tilewright::train
