#include "common/contract/repository_id.h"

#include <algorithm>
#include <cstddef>

namespace tilewright {
namespace {

constexpr std::size_t kMaxNameBytes = 96;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

bool is_repository_id(std::string_view id) {
  if (std::ranges::count(id, '/') > 1) return false;
  while (!id.empty()) {
    const std::size_t slash = id.find('/');
    const std::string_view part = id.substr(0, slash);
    if (part.empty() || !std::ranges::all_of(part, is_word) ||
        part.find("..") != std::string_view::npos || part.find("--") != std::string_view::npos ||
        part.front() == '.' || part.front() == '-' || part.back() == '.' || part.back() == '-') {
      return false;
    }
    if (slash == std::string_view::npos) return part.size() <= kMaxNameBytes;
    id.remove_prefix(slash + 1);
  }
  return false;  // empty, or ends with a slash
}

}  // namespace tilewright
