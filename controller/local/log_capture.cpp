#include "controller/local/log_capture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/strings.h"

namespace tilewright::local {
namespace {

// The length of the escape sequence (ECMA-48 CSI, or two bytes) at the start of `text`.
std::size_t escape_length(std::string_view text) {
  if (text.size() < 2 || text[1] != '[') return std::min<std::size_t>(2, text.size());
  std::size_t end = 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return std::min(end + 1, text.size());
}

}  // namespace

std::string strip_terminal_codes(std::string_view line) {
  std::string result;
  result.reserve(line.size());
  while (!line.empty()) {
    const auto first = static_cast<unsigned char>(line[0]);
    if (first == 0x1B) {
      line.remove_prefix(escape_length(line));
      continue;
    }
    const std::size_t length = utf8_sequence_length(line);
    if (length == 0) {
      result += "\xEF\xBF\xBD";  // U+FFFD
    } else if (first == '\t' || (first >= 0x20 && first != 0x7F)) {
      result += line.substr(0, length);
    }
    line.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

Result<LogCapture> LogCapture::open(const std::filesystem::path& file, LineSink sink) {
  FileDescriptor descriptor(
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!descriptor) {
    return Error{ExitCode::kOutput, fmt::format("cannot write the log file {}: {}", file.string(),
                                                std::strerror(errno))};
  }
  return LogCapture(std::move(descriptor), std::move(sink));
}

void LogCapture::append(std::string_view bytes) {
  // The bytes go to the file unchanged. A full disk must not stop the training, so write errors are
  // ignored; the lines still reach the sink.
  [[maybe_unused]] const auto ignored = ::write(file_.get(), bytes.data(), bytes.size());
  while (!bytes.empty()) {
    const std::size_t remaining = kMaxLineBytes - partial_.size();
    const std::size_t end = bytes.substr(0, remaining).find('\n');
    const bool complete = end != std::string_view::npos;
    partial_ += bytes.substr(0, complete ? end : remaining);
    bytes.remove_prefix(complete ? end + 1 : std::min(remaining, bytes.size()));
    if (complete || partial_.size() == kMaxLineBytes) {
      emit_line(partial_);
      partial_.clear();
    }
  }
}

void LogCapture::finish() {
  if (partial_.empty()) return;
  [[maybe_unused]] const auto ignored = ::write(file_.get(), "\n", 1);
  emit_line(partial_);
  partial_.clear();
}

void LogCapture::emit_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::string shown = strip_terminal_codes(line);
  shown.resize(utf8_prefix_length(shown, kTailBytes));
  last_lines_.push_back(std::move(shown));
  if (last_lines_.size() > kTailLines) last_lines_.pop_front();
  sink_(line);
}

std::string LogCapture::tail() const {
  std::string result;
  for (auto line = last_lines_.rbegin(); line != last_lines_.rend(); ++line) {
    if (!result.empty() && result.size() + line->size() + 1 > kTailBytes) break;
    result = result.empty() ? *line : fmt::format("{}\n{}", *line, result);
  }
  return result;
}

}  // namespace tilewright::local
