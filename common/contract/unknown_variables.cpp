#include "common/contract/unknown_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "common/contract/environment.h"
#include "common/contract/nearest.h"

namespace tilewright {
namespace {

constexpr std::string_view kPrefix = "TILEWRIGHT_";
constexpr std::string_view kServiceHost = "_SERVICE_HOST";  // Kubernetes sets it for each Service

}  // namespace

std::vector<std::string> describe_unknown_variables(const char* const* environment) {
  std::vector<std::string_view> unknown;
  std::vector<std::string> services;  // prefixes of the variables of a Service
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with("TILEWRIGHT")) continue;
    if (name.ends_with(kServiceHost)) {
      services.push_back(std::string(name.substr(0, name.size() - kServiceHost.size())) + "_");
    }
    if (name.starts_with(kPrefix) &&
        std::ranges::find(env::kVariables, name, &env::Variable::name) ==
            std::end(env::kVariables)) {
      unknown.push_back(name);
    }
  }
  std::vector<std::string_view> known;
  for (const env::Variable& variable : env::kVariables) {
    if (variable.name.starts_with(kPrefix)) known.push_back(variable.name);
  }
  std::vector<std::string> sentences;
  for (const std::string_view name : unknown) {
    if (std::ranges::any_of(services, [&](const auto& prefix) { return name.starts_with(prefix); }))
      continue;
    sentences.push_back(
        fmt::format("{}: unknown environment variable{}", name, did_you_mean(name, known)));
  }
  return sentences;
}

}  // namespace tilewright
