#include "worker/elastic/line_prefixer.h"

#include <algorithm>

namespace tilewright::elastic {

std::string LinePrefixer::feed(std::string_view bytes) {
  partial_line_.append(bytes);
  std::string lines;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = partial_line_.find('\n', begin);
    if (end == std::string::npos && partial_line_.size() - begin < kMaxLine) break;
    const std::size_t size = std::min(end == std::string::npos ? kMaxLine : end - begin, kMaxLine);
    lines.append(prefix_).append(partial_line_, begin, size).append("\n");
    begin += size;
    if (begin == end) ++begin;
  }
  partial_line_.erase(0, begin);
  return lines;
}

std::string LinePrefixer::flush() { return partial_line_.empty() ? "" : feed("\n"); }

}  // namespace tilewright::elastic
