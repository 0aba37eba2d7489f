// The rows of the table of training flags (training_flag_table.cpp) that change nothing.
#pragma once

#include <vector>

#include "common/contract/training_flags.h"

namespace tilewright {

// Flags of the scripts and of TrainingArguments that need nothing here.
std::vector<TrainingFlag> flags_without_effect();

// Flags whose effect Tilewright does not have.
std::vector<TrainingFlag> refused_flags();

}  // namespace tilewright
