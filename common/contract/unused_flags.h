// The rows of the table of training flags (training_flag_table.cpp) that change nothing.
#pragma once

#include <string_view>
#include <vector>

#include "common/contract/training_flags.h"

namespace tilewright {

// Why flags about the exchange of gradients have no effect.
inline constexpr std::string_view kOwnTransport = "the workers use Tilewright's own transport";

// Flags of the scripts and of TrainingArguments that need nothing here.
std::vector<TrainingFlag> flags_without_effect();

// Flags whose effect Tilewright does not have.
std::vector<TrainingFlag> refused_flags();

}  // namespace tilewright
