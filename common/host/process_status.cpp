#include "common/host/process_status.h"

#include <fstream>

#include "common/host/cpu_list.h"

namespace tilewright::host {

std::string status_field(const std::filesystem::path& process, std::string_view name) {
  std::ifstream in(process / "status");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t begin = line.find_first_not_of(" \t", name.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::vector<int> allowed_cpus_of(const std::filesystem::path& process) {
  return parse_cpu_list(status_field(process, "Cpus_allowed_list:"));
}

}  // namespace tilewright::host
