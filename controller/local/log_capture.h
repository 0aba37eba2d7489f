// Captures the output of a worker: appends it to the log file, keeps the last lines for the failure
// history, and passes each line on.
#pragma once

#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/file_descriptor.h"
#include "common/base/result.h"

namespace tilewright::local {

class LogCapture {
 public:
  // Longer lines are split, which bounds the memory for a worker that writes no line feed.
  static constexpr std::size_t kMaxLineBytes = 16 * 1024;
  // Bounds of tail(). A kubelet keeps at most 2 KiB of the log as the termination message
  // (terminationMessagePolicy: FallbackToLogsOnError).
  static constexpr std::size_t kTailLines = 10;
  static constexpr std::size_t kTailBytes = 2048;

  using LineSink = std::function<void(std::string_view line)>;

  // Appends to `file`, so that a restarted worker continues the same log. Error: kOutput.
  static Result<LogCapture> open(const std::filesystem::path& file, LineSink sink);

  void append(std::string_view bytes);
  // Emits the last line even if it has no line feed. Call it after the worker has exited.
  void finish();

  // The last lines, joined with line feeds: at most kTailLines lines and kTailBytes bytes.
  std::string tail() const;

 private:
  LogCapture(FileDescriptor file, LineSink sink) : file_(std::move(file)), sink_(std::move(sink)) {}
  void emit_line(std::string_view line);

  FileDescriptor file_;
  LineSink sink_;
  std::string partial_;
  std::deque<std::string> last_lines_;
};

// Returns `line` without terminal escape sequences and control bytes other than tab, and with
// U+FFFD in place of invalid UTF-8: safe for a status and for a terminal.
std::string strip_terminal_codes(std::string_view line);

}  // namespace tilewright::local
