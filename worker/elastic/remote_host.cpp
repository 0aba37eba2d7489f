#include "worker/elastic/remote_host.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <map>

#include "common/net/wait.h"
#include "common/process/shell_quoting.h"

namespace tilewright::elastic {
namespace {

constexpr int kProgramNotFound = 127;  // of the remote shell
constexpr int kProgramNotRunnable = 126;
constexpr Duration kConfigTimeout = std::chrono::seconds(10);
constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

}  // namespace

ChildCommand over_ssh(const std::filesystem::path& ssh, const std::string& host,
                      const RemoteCommand& command) {
  std::string line;
  if (!command.directory.empty())
    line = fmt::format("cd {} && ", shell_quoted(command.directory.string()));
  line += fmt::format("exec {}", shell_quoted(command.program.string()));
  for (const std::string& word : command.arguments) line += fmt::format(" {}", shell_quoted(word));
  ChildCommand result;
  result.program = ssh;
  result.arguments = {"-T",
                      "-o",
                      "BatchMode=yes",
                      "-o",
                      "ConnectTimeout=10",
                      "-o",
                      "ServerAliveInterval=5",
                      "-o",
                      "ServerAliveCountMax=3",
                      "-o",
                      "LogLevel=ERROR",
                      "--",
                      host,
                      line};
  result.environment = environment_with_overrides({});
  result.separate_error = true;
  result.input_pipe = true;
  return result;
}

ChildCommand on_this_host(const RemoteCommand& command) {
  ChildCommand result;
  result.program = command.program;
  result.arguments = command.arguments;
  result.environment = environment_with_overrides({});
  result.working_directory = command.directory;
  result.separate_error = true;
  result.input_pipe = true;
  return result;
}

Result<std::string> ssh_host_name(const std::filesystem::path& ssh, const std::string& host) {
  ChildCommand command;
  command.program = ssh;
  command.arguments = {"-G", "--", host};
  command.environment = environment_with_overrides({});
  command.separate_error = true;
  auto started = ChildProcess::start(command);
  if (!started.ok()) return started.error();
  ChildProcess process = std::move(started).value();
  std::string text, error;
  const net::Wait wait = net::within(kConfigTimeout);
  std::optional<int> code;
  while (!code && monotonic_now() < wait.deadline && text.size() < kMaxConfigBytes) {
    pollfd fds[] = {{process.exit_fd(), POLLIN, 0},
                    {process.output_fd(), POLLIN, 0},
                    {process.error_fd(), POLLIN, 0}};
    poll(fds, std::size(fds), net::poll_timeout(wait.deadline));
    code = process.poll_exit();
    std::string more;
    do {
      more = process.read_output();
      text += more;
      error += process.read_error();
    } while (code && !more.empty());
  }
  constexpr std::string_view kKey = "hostname ";
  for (std::string_view rest = text; code == 0 && !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.starts_with(kKey)) return std::string(line.substr(kKey.size()));
  }
  return Error{ExitCode::kUsage, fmt::format("{}: ssh -G does not name its address: {}", host,
                                             error.substr(0, error.find('\n')))};
}

std::string describe_failed_start(const RemoteCommand& command, int exit_code,
                                  const std::string& last_error_line) {
  if (exit_code == kSshFailed)
    return fmt::format("cannot be reached: {}",
                       last_error_line.empty() ? "ssh gives no reason" : last_error_line);
  if (exit_code == kProgramNotFound || exit_code == kProgramNotRunnable)
    return fmt::format("cannot run {}, expected the same program at the same path on all hosts",
                       command.program.string());
  return fmt::format("the program did not start (exit code {}){}{}", exit_code,
                     last_error_line.empty() ? "" : ": ", last_error_line);
}

}  // namespace tilewright::elastic
