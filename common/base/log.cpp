#include "common/base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "common/base/output_queue.h"
#include "common/base/printable.h"

namespace tilewright {
namespace {

// parse_log_line() parses this format: a timestamp of kTimestampShape, the level's name and the
// message, separated by single spaces.
constexpr const char* kPattern = "%Y-%m-%dT%H:%M:%S.%e %l %v";
constexpr std::string_view kTimestampShape = "0000-00-00T00:00:00.000";  // 0: any digit

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool starts_with_timestamp(std::string_view text) {
  return text.size() > kTimestampShape.size() && text[kTimestampShape.size()] == ' ' &&
         std::equal(kTimestampShape.begin(), kTimestampShape.end(), text.begin(),
                    [](char shape, char c) { return shape == '0' ? is_digit(c) : shape == c; });
}

// Standard error, without waiting for its reader.
class StandardErrorSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    // A message may contain text of peers and files. One message is one line.
    const std::string text = printable({message.payload.data(), message.payload.size()});
    spdlog::details::log_msg escaped = message;
    escaped.payload = text;
    spdlog::memory_buf_t line;
    formatter_->format(escaped, line);
    output_.write(STDERR_FILENO, {line.data(), line.size()});
  }
  void flush_() override {}

 private:
  OutputQueue output_;
};

}  // namespace

std::shared_ptr<Logger> make_logger(const std::string& level) {
  auto logger = std::make_shared<Logger>("", std::make_shared<StandardErrorSink>());
  logger->set_pattern(kPattern);
  logger->set_level(spdlog::level::from_str(level));
  return logger;
}

std::string_view without_process_prefix(std::string_view line) {
  constexpr std::string_view kEnd = "] ";
  const std::size_t end = line.starts_with('[') ? line.find(kEnd) : std::string_view::npos;
  return end == std::string_view::npos ? line : line.substr(end + kEnd.size());
}

std::optional<LogLine> parse_log_line(std::string_view line) {
  line = without_process_prefix(line);
  if (!starts_with_timestamp(line)) return std::nullopt;
  line.remove_prefix(kTimestampShape.size() + 1);
  for (const auto level : {spdlog::level::trace, spdlog::level::debug, spdlog::level::info,
                           spdlog::level::warn, spdlog::level::err, spdlog::level::critical}) {
    const spdlog::string_view_t name = spdlog::level::to_string_view(level);
    const std::string_view text(name.data(), name.size());
    if (line.size() > text.size() && line.starts_with(text) && line[text.size()] == ' ') {
      return LogLine{level, line.substr(text.size() + 1)};
    }
  }
  return std::nullopt;
}

}  // namespace tilewright
