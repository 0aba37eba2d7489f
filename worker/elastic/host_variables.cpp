#include "worker/elastic/host_variables.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>

#include "common/contract/environment.h"

namespace tilewright::elastic {
namespace {

bool is_users_for_worker(std::string_view name) {
  const auto* const row = std::ranges::find(env::kVariables, name, &env::Variable::name);
  return row != std::end(env::kVariables) && row->set_by.empty() &&
         row->read_by.find("tilewright-worker") != std::string_view::npos;
}

}  // namespace

HostVariables variables_for_hosts(const char* const* environment) {
  HostVariables result;
  std::size_t total = 0;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (entry.size() <= name.size() + 1 || !is_users_for_worker(name)) continue;
    if (entry.size() > kMaxVariableLine || total + entry.size() > kMaxVariableBytes ||
        entry.find('\n') != std::string_view::npos) {
      result.notes.push_back(
          fmt::format("{}: not passed to the other hosts, expected one line of at most {} bytes, "
                      "and {} with the other variables",
                      name, kMaxVariableLine, kMaxVariableBytes));
      continue;
    }
    total += entry.size();
    result.lines.emplace_back(entry);
  }
  return result;
}

Status set_variables_of_host_group(
    const std::function<std::optional<std::string>(std::size_t max_bytes)>& read_line) {
  for (std::size_t total = 0; total <= kMaxVariableBytes;) {
    const std::optional<std::string> line = read_line(kMaxVariableLine);
    if (!line) break;
    if (line->empty()) return {};
    const std::size_t equals = line->find('=');
    const std::string name = line->substr(0, equals);
    if (equals == std::string::npos || !is_users_for_worker(name)) break;
    setenv(name.c_str(), line->c_str() + equals + 1, 1);
    total += line->size();
  }
  return Error{ExitCode::kUsage,
               "--rdzv-key-file -: expected variables of the worker and an empty line after the "
               "secret on standard input"};
}

}  // namespace tilewright::elastic
