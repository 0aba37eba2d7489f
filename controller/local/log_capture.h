// Cuts a worker's output into lines: kept in its log file, remembered for the ledger, and handed on
// for the screen.
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
  // A longer line is cut into several, so that a worker that never ends its line costs no memory.
  static constexpr std::size_t kMaxLineBytes = 16 * 1024;
  // What the ledger shows of a failed worker, at the most; a kubelet's fall-back to logs keeps 2
  // KiB.
  static constexpr std::size_t kTailLines = 10;
  static constexpr std::size_t kTailBytes = 2048;

  using LineSink = std::function<void(std::string_view line)>;

  // Appends to `file`: a worker that is started again goes on in the same one.
  static Result<LogCapture> open(const std::filesystem::path& file, LineSink sink);

  void append(std::string_view bytes);
  // The worker has ended: its last line may lack its end.
  void finish();

  // The last lines, joined with line ends.
  std::string tail() const;

 private:
  LogCapture(FileDescriptor file, LineSink sink) : file_(std::move(file)), sink_(std::move(sink)) {}
  void take_line(std::string_view line);

  FileDescriptor file_;
  LineSink sink_;
  std::string partial_;
  std::deque<std::string> last_;
};

// `line` without terminal escape sequences and other control bytes, and with what is not UTF-8
// replaced, so that it can stand in a status and on a terminal.
std::string printable(std::string_view line);

}  // namespace tilewright::local
