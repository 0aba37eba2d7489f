#include "common/base/log.h"

#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace tilewright {

std::shared_ptr<Logger> make_logger(const std::string& name, const std::string& level) {
  auto logger = std::make_shared<Logger>(name, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %n: %v");
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  return logger;
}

std::shared_ptr<Logger> make_silent_logger() {
  return std::make_shared<Logger>("silent", std::make_shared<spdlog::sinks::null_sink_mt>());
}

}  // namespace tilewright
