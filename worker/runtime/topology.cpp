#include "worker/runtime/topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <string>

namespace tilewright::runtime {
namespace {

constexpr int kMaxCpu = 65535;

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMaxCpu)
    return std::nullopt;
  return value;
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const std::size_t hyphen = part.find('-');
    const auto first = number(part.substr(0, hyphen));
    const auto last = hyphen == std::string_view::npos ? first : number(part.substr(hyphen + 1));
    if (!first || !last || *last < *first) return {};
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<std::vector<int>> numa_nodes(const std::vector<int>& allowed,
                                         const std::filesystem::path& directory) {
  std::map<int, std::vector<int>> nodes;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("node")) continue;
    const auto node = number(std::string_view(name).substr(4));
    std::ifstream file(entry.path() / "cpulist");
    std::string list;
    if (!node || !(file >> list)) continue;  // a node without CPUs has an empty list
    for (const int cpu : parse_cpu_list(list))
      if (std::ranges::find(allowed, cpu) != allowed.end()) nodes[*node].push_back(cpu);
  }
  std::vector<std::vector<int>> result;
  for (auto& [node, cpus] : nodes) result.push_back(std::move(cpus));
  if (result.empty()) result.push_back(allowed);
  return result;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  return cpus;
}

}  // namespace tilewright::runtime
