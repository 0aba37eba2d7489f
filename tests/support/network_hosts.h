// Hosts for tests of launchers: network namespaces of this machine with an address, a name and an
// sshd each, and a configuration of ssh that connects them. They share the file system.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/running_program.h"

namespace tilewright::testing {

class NetworkHosts {
 public:
  // What this machine lacks; empty: nothing.
  static std::string missing();

  // Throws std::runtime_error if a command fails.
  explicit NetworkHosts(int count);
  ~NetworkHosts();
  NetworkHosts(const NetworkHosts&) = delete;
  NetworkHosts& operator=(const NetworkHosts&) = delete;

  int count() const { return count_; }
  // From host 0: "node1", "10.77.0.1".
  std::string name(int host) const { return "node" + std::to_string(host + 1); }
  std::string address(int host) const { return "10.77.0." + std::to_string(host + 1); }
  // A name that only the configuration of ssh knows.
  std::string alias(int host) const { return "alias" + std::to_string(host + 1); }
  // Gives a host another name, in /etc/hosts of all hosts.
  void add_name(const std::string& name, int host) const;
  // A name a line.
  std::filesystem::path hostfile_path() const { return directory_.path() / "hostfile"; }
  // The directory with `ssh`, for the front of PATH.
  std::filesystem::path programs() const { return directory_.path() / "bin"; }
  // The command line that runs `words` (a path first) on a host.
  std::vector<std::string> command(int host, const std::vector<std::string>& words) const;

 private:
  std::string network(int host) const;
  void connect();
  void start_ssh();
  void remove() noexcept;

  const int count_;
  TemporaryDirectory directory_;
  std::vector<std::unique_ptr<RunningProgram>> servers_;
};

}  // namespace tilewright::testing
