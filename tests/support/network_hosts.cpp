#include "tests/support/network_hosts.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

#include "common/process/child_process.h"
#include "tests/support/running_program.h"

namespace tilewright::testing {
namespace {

constexpr int kSshPort = 22;

std::filesystem::path system_program(const char* name) {
  return find_program(name, "/usr/sbin:/usr/bin:/sbin:/bin").value_or("");
}

// Runs a program to its end; throws with its output if it fails.
void run(const std::vector<std::string>& words, const std::filesystem::path& folder) {
  RunningProgram program(system_program(words.front().c_str()), {words.begin() + 1, words.end()},
                         folder);
  if (program.wait() != 0) {
    throw std::runtime_error(fmt::format("{} failed: {}", words.front(), program.output()));
  }
}

void write(const std::filesystem::path& path, const std::string& text, unsigned mode = 0644) {
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
}

}  // namespace

std::string NetworkHosts::missing() {
  if (geteuid() != 0) return "network namespaces need root";
  for (const char* name :
       {"ip", "tc", "nsenter", "unshare", "mount", "sshd", "ssh", "ssh-keygen"}) {
    if (system_program(name).empty()) {
      return std::string(name) + " is missing: install iproute2, util-linux and openssh-server";
    }
  }
  return "";
}

NetworkHosts::NetworkHosts(int count) : count_(count) {
  const std::string folder = directory_.path();
  run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder + "/key"}, folder);
  run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder + "/host_key"}, folder);
  std::string hosts = "127.0.0.1 localhost\n", hostfile, aliases;
  for (int host = 0; host < count; ++host) {
    hosts += fmt::format("{} {}\n", address(host), name(host));
    hostfile += name(host) + "\n";
    aliases += fmt::format("Host {}\n  HostName {}\n", alias(host), address(host));
  }
  write(directory_.path() / "hosts", hosts);
  write(hostfile_path(), hostfile);
  write(directory_.path() / "sshd_config",
        fmt::format("Port {}\nHostKey {}/host_key\nAuthorizedKeysFile {}/key.pub\nUsePAM no\n"
                    "PermitRootLogin yes\nStrictModes no\nPidFile none\nMaxStartups 100\n",
                    kSshPort, folder, folder));
  write(directory_.path() / "ssh_config",
        fmt::format("{}Host *\n  User root\n  IdentityFile {}/key\n  IdentitiesOnly yes\n"
                    "  BatchMode yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
                    "  LogLevel ERROR\n",
                    aliases, folder));
  // ssh reads ~/.ssh/config of the password file; this one comes first in PATH instead.
  std::filesystem::create_directory(programs());
  write(programs() / "ssh",
        fmt::format("#!/bin/sh\nexec /usr/bin/ssh -F {}/ssh_config \"$@\"\n", folder), 0755);
  // The mounts end with the process: the host's own names, and the directory that sshd requires.
  write(directory_.path() / "enter",
        fmt::format("#!/bin/sh\nset -e\nmount --bind {}/hosts /etc/hosts\n"
                    "mount -t tmpfs tmpfs /run\nmkdir /run/sshd\nhostname \"$1\"\nshift\n"
                    "exec \"$@\"\n",
                    folder),
        0755);
  try {
    connect();
    start_ssh();
  } catch (...) {
    remove();
    throw;
  }
}

NetworkHosts::~NetworkHosts() { remove(); }

std::string NetworkHosts::network(int host) const {
  return fmt::format("tilewright-{}-{}", getpid(), host);
}

void NetworkHosts::add_name(const std::string& name, int host) const {
  std::ofstream(directory_.path() / "hosts", std::ios::app)
      << fmt::format("{} {}\n", address(host), name);
}

// The hosts' links end at a bridge in a namespace of its own, number count_.
void NetworkHosts::connect() {
  const std::string folder = directory_.path(), bridge = network(count_);
  run({"ip", "netns", "add", bridge}, folder);
  run({"ip", "-n", bridge, "link", "add", "bridge", "type", "bridge"}, folder);
  run({"ip", "-n", bridge, "link", "set", "bridge", "up"}, folder);
  for (int host = 0; host < count_; ++host) {
    const std::string port = fmt::format("port{}", host);
    run({"ip", "netns", "add", network(host)}, folder);
    run({"ip", "-n", network(host), "link", "set", "lo", "up"}, folder);
    run({"ip", "-n", bridge, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
         network(host)},
        folder);
    run({"ip", "-n", bridge, "link", "set", port, "master", "bridge", "up"}, folder);
    run({"ip", "-n", network(host), "address", "add", address(host) + "/24", "dev", "eth0"},
        folder);
    run({"ip", "-n", network(host), "link", "set", "eth0", "up"}, folder);
    // 1 Gbit/s: packets queue and are sent in bursts, as between real hosts.
    run({"tc", "-n", network(host), "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "1gbit",
         "burst", "256kb", "latency", "50ms"},
        folder);
  }
}

void NetworkHosts::start_ssh() {
  for (int host = 0; host < count_; ++host) {
    const std::vector<std::string> words = command(
        host, {system_program("sshd"), "-D", "-e", "-f", directory_.path() / "sshd_config"});
    servers_.push_back(std::make_unique<RunningProgram>(
        words.front(), std::vector<std::string>(words.begin() + 1, words.end()),
        directory_.path()));
    if (!servers_.back()->wait_for_output("Server listening on 0.0.0.0")) {
      throw std::runtime_error("sshd does not start");
    }
  }
}

void NetworkHosts::remove() noexcept {
  servers_.clear();
  for (int host = 0; host <= count_; ++host) {
    try {
      run({"ip", "netns", "delete", network(host)}, directory_.path());
    } catch (const std::exception&) {  // it was not made
    }
  }
}

std::vector<std::string> NetworkHosts::command(int host,
                                               const std::vector<std::string>& words) const {
  std::vector<std::string> result = {system_program("nsenter"),
                                     "--net=/run/netns/" + network(host),
                                     system_program("unshare"),
                                     "--mount",
                                     "--uts",
                                     directory_.path() / "enter",
                                     name(host)};
  result.insert(result.end(), words.begin(), words.end());
  return result;
}

}  // namespace tilewright::testing
