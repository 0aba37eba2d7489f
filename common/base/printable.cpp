#include "common/base/printable.h"

#include <fmt/format.h>

#include "common/base/strings.h"

namespace tilewright {

std::string printable(std::string_view text, Lines lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_sequence_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (length == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[1]));
    } else if (length > 1 || (first == '\n' && lines == Lines::kSeveral)) {
      out += text.substr(0, length);
    } else if (first == '\n') {
      out += "\\n";
    } else if (first == '\t') {
      out += "\\t";
    } else if (length == 0 || first < 0x20 || first == 0x7f) {
      out += fmt::format("\\x{:02x}", first);
    } else {
      out += text[0];
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string excerpt(std::string_view text, std::size_t max_bytes) {
  const std::size_t shown = utf8_prefix_length(text, max_bytes);
  return printable(text.substr(0, shown)) + (shown < text.size() ? "..." : "");
}

std::string quoted_excerpt(std::string_view text, std::size_t max_bytes) {
  return fmt::format("\"{}\"", excerpt(text, max_bytes));
}

}  // namespace tilewright
