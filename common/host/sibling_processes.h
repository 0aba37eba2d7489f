// Other processes of a program that run on the same CPUs.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string_view>
#include <vector>

namespace tilewright::host {

struct SiblingProcess {
  pid_t pid = 0;
  std::vector<int> shared_cpus;  // CPUs that it and this process may use; not empty

  bool operator==(const SiblingProcess&) const = default;
};

// The processes, in ascending order of pid, whose program has the file name `program` and whose
// first argument is one of `commands`, except `own`. Those of other PID namespaces are not visible.
// `root` replaces / in the paths of /proc.
std::vector<SiblingProcess> sibling_processes(std::string_view program,
                                              const std::vector<std::string_view>& commands,
                                              const std::vector<int>& allowed, pid_t own,
                                              const std::filesystem::path& root = "/");

}  // namespace tilewright::host
