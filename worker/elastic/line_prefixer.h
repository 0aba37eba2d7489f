// Prefixes output lines with the name of the process that wrote them.
#pragma once

#include <string>
#include <string_view>

namespace tilewright::elastic {

// Cuts a stream into lines and puts a prefix before each. A line longer than kMaxLine is broken.
class LinePrefixer {
 public:
  static constexpr std::size_t kMaxLine = 64 << 10;
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}
  // The whole lines that `bytes` complete, prefixed, each with its newline.
  std::string feed(std::string_view bytes);
  // The rest of the last line, if it had no newline.
  std::string flush();

 private:
  std::string prefix_;
  std::string partial_line_;
};

}  // namespace tilewright::elastic
