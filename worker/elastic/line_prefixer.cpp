#include "worker/elastic/line_prefixer.h"

#include <algorithm>

namespace tilewright::elastic {

std::string LinePrefixer::feed(std::string_view bytes) {
  rest_.append(bytes);
  std::string lines;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = rest_.find('\n', begin);
    if (end == std::string::npos && rest_.size() - begin < kMaxLine) break;
    const std::size_t size = std::min(end == std::string::npos ? kMaxLine : end - begin, kMaxLine);
    lines.append(prefix_).append(rest_, begin, size).append("\n");
    begin += size;
    if (begin == end) ++begin;
  }
  rest_.erase(0, begin);
  return lines;
}

std::string LinePrefixer::flush() { return rest_.empty() ? "" : feed("\n"); }

}  // namespace tilewright::elastic
