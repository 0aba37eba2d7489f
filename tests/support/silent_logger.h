// A logger that discards every line.
#pragma once

#include <spdlog/sinks/null_sink.h>

#include <memory>

#include "common/base/log.h"

namespace tilewright::testing {

inline std::shared_ptr<Logger> make_silent_logger() {
  return std::make_shared<Logger>("silent", std::make_shared<spdlog::sinks::null_sink_mt>());
}

}  // namespace tilewright::testing
