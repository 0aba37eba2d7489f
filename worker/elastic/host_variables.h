// The variables that a host group passes to the agents of its hosts: what the user set for the
// workers on the first host counts on all of them. They go through standard input, behind the
// secret, because others can read command lines and one may be a token.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace tilewright::elastic {

inline constexpr std::size_t kMaxVariableLine = 4095;  // PIPE_BUF with the newline
// The pipe to an agent holds 64 KiB, and nothing waits until the agent has read a part of it.
inline constexpr std::size_t kMaxVariableBytes = 32 << 10;

struct HostVariables {
  std::vector<std::string> lines;  // NAME=VALUE
  std::vector<std::string> notes;  // a sentence for each one that is too long
};
// Of a null-terminated environment: the variables that the worker reads and the user sets.
HostVariables variables_for_hosts(const char* const* environment);

// Reads lines until an empty one and sets the variables in this process. `read_line` returns a line
// without its newline, or nullopt at the end of the stream or after a time. An Error (kUsage) names
// what is missing.
Status set_variables_of_host_group(
    const std::function<std::optional<std::string>(std::size_t max_bytes)>& read_line);

}  // namespace tilewright::elastic
