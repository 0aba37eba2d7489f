// The log: one logger made at main and passed down by reference; lines go to standard error.
#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <string>

namespace tilewright {

using Logger = spdlog::logger;

// Levels: trace, debug, info, warn, error. `name` stands in each line: "worker 1".
std::shared_ptr<Logger> make_logger(const std::string& name, const std::string& level = "info");

// For tests and library use: a logger that writes nowhere.
std::shared_ptr<Logger> make_silent_logger();

}  // namespace tilewright
