#include "common/contract/nearest.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright {
namespace {

// Longer inputs are not misspelt names. Bounds the table in distance().
constexpr std::size_t kLongestName = 100;

std::string normalized(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c == '_' || c == '-') continue;
    letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return letters;
}

// Optimal string alignment distance.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& candidates) {
  if (name.empty() || name.size() > kLongestName) return {};
  const std::string wanted = normalized(name);
  std::string_view best;
  std::size_t best_distance = 0;
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > 2 * kLongestName) continue;
    const std::string known = normalized(candidate);
    const std::size_t longer = std::max(wanted.size(), known.size());
    const std::size_t allowed = std::max<std::size_t>(2, longer / 3);
    // A distance is at least the difference of the lengths.
    if (longer - std::min(wanted.size(), known.size()) > allowed) continue;
    const std::size_t found = distance(wanted, known);
    if (found > allowed || found >= known.size()) continue;
    if (best.empty() || found < best_distance) {
      best = candidate;
      best_distance = found;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& candidates) {
  const std::string_view nearest = nearest_name(name, candidates);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

}  // namespace tilewright
