// Runs this program on another host over the system's ssh, or on this host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/process/child_process.h"

namespace tilewright::elastic {

inline constexpr int kSshFailed = 255;  // exit code of ssh(1) after an error of ssh itself

struct RemoteCommand {
  std::filesystem::path program;  // of Tilewright, the same on all hosts
  std::vector<std::string> arguments;
  std::filesystem::path directory;  // entered first; empty: ssh's
};

// The command that runs it on `host` in batch mode: ssh asks for nothing, and a dead connection
// ends it within 15 s. The name goes to ssh unchanged, so that ~/.ssh/config applies.
ChildCommand over_ssh(const std::filesystem::path& ssh, const std::string& host,
                      const RemoteCommand& command);
ChildCommand on_this_host(const RemoteCommand& command);

// The address that ssh connects to for this name, from `ssh -G`. Error: kUsage.
Result<std::string> ssh_host_name(const std::filesystem::path& ssh, const std::string& host);

// Why a command did not start, from its exit code and the last line of its standard error: "cannot
// be reached: ..." or "has no program ...".
std::string describe_failed_start(const RemoteCommand& command, int exit_code,
                                  const std::string& last_error_line);

}  // namespace tilewright::elastic
