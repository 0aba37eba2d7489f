// The log of both programs: one line per message on standard error,
// `2026-11-22T19:42:57.977 info data: 642 examples`. Each main makes one logger and passes it down.
#pragma once

#include <spdlog/common.h>
#include <spdlog/logger.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright {

using Logger = spdlog::logger;

// Levels: trace, debug, info, warn, error. A line does not name the process: `kubectl logs` names
// the pod, `tilewright up` names the worker, and the agent prefixes the lines of its processes.
std::shared_ptr<Logger> make_logger(const std::string& level = "info");

// The line without the agent's prefix `[worker 0.1] `.
std::string_view without_process_prefix(std::string_view line);

struct LogLine {
  spdlog::level::level_enum level = spdlog::level::info;
  std::string_view message;  // points into the parsed line
};

// Parses a line that make_logger() formatted, with or without the agent's prefix `[worker 0.1] `.
// Returns nullopt for any other text.
std::optional<LogLine> parse_log_line(std::string_view line);

}  // namespace tilewright
