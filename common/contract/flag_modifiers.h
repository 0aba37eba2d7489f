// Properties of rows of the table of training flags that both of its files set. Only for these
// files.
#pragma once

#include <string_view>

#include "common/contract/training_flags.h"

namespace tilewright {

inline TrainingFlag secret(TrainingFlag flag) {
  flag.secret = true;
  return flag;
}

inline TrainingFlag differs(TrainingFlag flag, std::string_view difference) {
  flag.difference = difference;
  return flag;
}

}  // namespace tilewright
