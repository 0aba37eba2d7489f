#include "tests/support/run_command.h"

#include <poll.h>

#include <stdexcept>

namespace tilewright::testing {

CommandResult run_command(const ChildCommand& command, std::chrono::seconds timeout) {
  Result<ChildProcess> started = ChildProcess::start(command);
  if (!started.ok()) throw std::runtime_error(started.error().message);
  ChildProcess& child = *started;
  CommandResult outcome;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd polled[] = {{child.output_fd(), POLLIN, 0},
                       {child.error_fd(), POLLIN, 0},
                       {child.exit_fd(), POLLIN, 0}};
    if (left.count() <= 0 || poll(polled, 3, static_cast<int>(left.count())) == 0) {
      throw std::runtime_error(command.program.string() + " does not end; it said:\n" +
                               outcome.output + outcome.error);
    }
    if (polled[0].revents != 0) outcome.output += child.read_output();
    if (polled[1].revents != 0) outcome.error += child.read_error();
    if (polled[2].revents == 0) continue;
    const std::optional<int> code = child.poll_exit();
    if (!code) continue;
    // The pipes may still hold output of the ended process.
    for (std::string more; !(more = child.read_output()).empty();) outcome.output += more;
    for (std::string more; !(more = child.read_error()).empty();) outcome.error += more;
    outcome.exit_code = *code;
    return outcome;
  }
}

CommandResult run_script(const std::string& script,
                         const std::map<std::string, std::string>& variables,
                         std::chrono::seconds timeout) {
  ChildCommand command;
  command.program = "/bin/bash";
  command.arguments = {"-euc", script};
  command.environment = environment_with_overrides(variables);
  return run_command(command, timeout);
}

}  // namespace tilewright::testing
