#include "common/host/cpu_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "common/base/strings.h"

namespace tilewright::host {
namespace {

std::optional<int> cpu(std::string_view text) { return parse_number<int>(text, 0, kMaxCpu); }

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const std::size_t hyphen = part.find('-');
    const auto first = cpu(part.substr(0, hyphen));
    const auto last = hyphen == std::string_view::npos ? first : cpu(part.substr(hyphen + 1));
    if (!first || !last || *last < *first) return {};
    // Also bounds the length of the result.
    if (!cpus.empty() && *first <= cpus.back()) return {};
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::string format_cpu_list(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (end - i > 1) text += fmt::format("-{}", cpus[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace tilewright::host
