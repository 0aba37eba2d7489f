// Fields of /proc/PID/status.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::host {

// The value of a field, `name` with its colon, without leading blanks; empty if it is missing.
// `process`: the directory /proc/PID.
std::string status_field(const std::filesystem::path& process, std::string_view name);

// The CPUs that the process may use (Cpus_allowed_list), ascending; empty if they are unknown.
std::vector<int> allowed_cpus_of(const std::filesystem::path& process);

}  // namespace tilewright::host
