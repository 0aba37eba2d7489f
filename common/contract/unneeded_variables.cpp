#include "common/contract/unneeded_variables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/contract/environment.h"

namespace tilewright {
namespace {

// Parts of the names of libraries that guides preload.
constexpr std::array<std::string_view, 5> kPreloaded = {"tcmalloc", "jemalloc", "mimalloc", "iomp",
                                                        "gomp"};

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return !pattern.empty() && name == pattern;
}

const env::Variable* find_variable(std::string_view name) {
  const auto* const found = std::ranges::find(env::kVariables, name, &env::Variable::name);
  return found == std::end(env::kVariables) ? nullptr : found;
}

// nullptr if there is none.
const UnneededVariables* find_row(std::string_view name) {
  const auto* const row = std::ranges::find_if(kUnneededVariables, [&](const auto& each) {
    return std::ranges::any_of(each.names, [&](auto pattern) { return matches(pattern, name); });
  });
  return row == std::end(kUnneededVariables) ? nullptr : row;
}

}  // namespace

std::string_view why_unneeded_in_job(std::string_view variable) {
  const env::Variable* effective = find_variable(variable);
  // The user sets it, for the worker.
  if (effective != nullptr && effective->set_by.empty()) return "";
  const UnneededVariables* row = find_row(variable);
  return row == nullptr ? "" : row->reason;
}

std::vector<std::string> describe_unneeded_variables(const char* const* environment) {
  std::vector<std::vector<std::string_view>> found(std::size(kUnneededVariables));
  std::string_view missing_preloads;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    const std::string_view value = entry.substr(std::min(name.size() + 1, entry.size()));
    if (name == env::kMissingPreloads) missing_preloads = value;
    if (value.empty() || find_variable(name) != nullptr) continue;
    if (name == "LD_PRELOAD" && std::ranges::none_of(kPreloaded, [&](std::string_view library) {
          return value.find(library) != std::string_view::npos;
        })) {
      continue;
    }
    const UnneededVariables* row = find_row(name);
    if (row != nullptr && !row->only_in_job) {
      found[static_cast<std::size_t>(row - std::begin(kUnneededVariables))].push_back(name);
    }
  }
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].empty()) continue;
    std::ranges::sort(found[i]);
    lines.push_back(fmt::format("{}: not used, because {}", fmt::join(found[i], ", "),
                                kUnneededVariables[i].reason));
  }
  if (!missing_preloads.empty()) {
    lines.push_back(
        fmt::format("LD_PRELOAD: not loaded and not needed, because the image does not "
                    "have {}",
                    missing_preloads));
  }
  return lines;
}

}  // namespace tilewright
