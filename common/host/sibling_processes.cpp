#include "common/host/sibling_processes.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "common/base/strings.h"
#include "common/host/process_status.h"

namespace tilewright::host {
namespace {

namespace fs = std::filesystem;

// The first `count` arguments of a process.
std::vector<std::string> arguments_of(const fs::path& process, std::size_t count) {
  std::vector<std::string> arguments;
  std::ifstream in(process / "cmdline");
  for (std::string argument; arguments.size() < count && std::getline(in, argument, '\0');)
    arguments.push_back(argument);
  return arguments;
}

}  // namespace

std::vector<SiblingProcess> sibling_processes(std::string_view program,
                                              const std::vector<std::string_view>& commands,
                                              const std::vector<int>& allowed, pid_t own,
                                              const fs::path& root) {
  std::vector<SiblingProcess> result;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root / "proc", ignored)) {
    const std::string name = entry.path().filename();
    const auto pid = parse_number<pid_t>(name);
    if (!pid || *pid == own) continue;
    // Only the user's own processes show their file. The worker image starts the program under
    // other names, so the first word of the command line is not sufficient.
    const std::vector<std::string> arguments = arguments_of(entry.path(), 2);
    if (arguments.size() < 2) continue;
    const fs::path file = fs::read_symlink(entry.path() / "exe", ignored);
    if ((file.empty() ? fs::path(arguments[0]) : file).filename() != program) continue;
    if (std::ranges::find(commands, arguments[1]) == commands.end()) continue;
    SiblingProcess sibling{*pid, {}};
    std::ranges::set_intersection(allowed_cpus_of(entry.path()), allowed,
                                  std::back_inserter(sibling.shared_cpus));
    if (!sibling.shared_cpus.empty()) result.push_back(std::move(sibling));
  }
  std::ranges::sort(result, {}, &SiblingProcess::pid);
  return result;
}

}  // namespace tilewright::host
