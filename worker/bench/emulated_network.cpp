#include "worker/bench/emulated_network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/strings.h"
#include "common/net/wait.h"
#include "common/process/child_process.h"

namespace tilewright::bench {
namespace {

constexpr Duration kCommandTimeout = std::chrono::seconds(30);
// A token bucket holds what the link sends in this time, and at least kLeastBurst: more than one
// segmentation-offload packet of 64 KiB, and enough to send on while the kernel's timer is late.
constexpr double kBurstSeconds = 2e-3;
constexpr double kLeastBurst = 128 << 10;
// Bytes that a port of the switch queues before it drops packets.
constexpr std::int64_t kQueueBytes = 16 << 20;

std::string address_of(int host) { return fmt::format("10.77.0.{}", host + 1); }

Failure system_failure(const std::string& what) {
  return {ExitCode::kInternal, fmt::format("{}: {}", what, std::strerror(errno))};
}

FileDescriptor current_namespace() {
  FileDescriptor found(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!found) throw system_failure("cannot open the network namespace of this process");
  return found;
}

void enter_namespace(const FileDescriptor& space) {
  if (setns(space.get(), CLONE_NEWNET) != 0) throw system_failure("cannot enter a namespace");
}

// The calling thread, and the processes that it starts, are in a namespace during its lifetime.
class Inside {
 public:
  explicit Inside(const FileDescriptor& space) : before_(current_namespace()) {
    enter_namespace(space);
  }
  ~Inside() { (void)setns(before_.get(), CLONE_NEWNET); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const FileDescriptor before_;
};

FileDescriptor make_namespace() {
  const FileDescriptor before = current_namespace();
  if (unshare(CLONE_NEWNET) != 0) {
    throw Failure(ExitCode::kUnsupported,
                  fmt::format("cannot create a network namespace: {}; run the benchmark as root",
                              std::strerror(errno)));
  }
  FileDescriptor made = current_namespace();
  enter_namespace(before);
  return made;
}

std::filesystem::path find(const std::string& name) {
  const auto found = find_program(name, environment_variable("PATH") + ":/usr/sbin:/sbin");
  if (found) return *found;
  throw Failure(ExitCode::kUnsupported,
                fmt::format("the program {} is missing: install iproute2", name));
}

// Runs a program to its end in the calling thread's namespace.
void run(const std::vector<std::string>& words) {
  ChildProcess child = ChildProcess::start({.program = find(words.front()),
                                            .arguments = {words.begin() + 1, words.end()},
                                            .environment = environment_with_overrides({}),
                                            .working_directory = "/",
                                            .cpus = {}})
                           .or_throw();
  const net::Wait wait(monotonic_now() + kCommandTimeout);
  std::string output;
  while (child.output_fd() >= 0 &&
         net::wait_ready(child.output_fd(), POLLIN, wait) == net::Ready::kYes) {
    output += child.read_output();
  }
  net::wait_ready(child.exit_fd(), POLLIN, wait);
  if (const auto code = child.poll_exit(); code != 0) {
    throw Failure(ExitCode::kUnsupported, fmt::format("\"{}\" failed: {}", fmt::join(words, " "),
                                                      code ? output : "it does not end"));
  }
}

void limit_rate(const std::string& device, double bits_per_second) {
  const double burst = std::max(kLeastBurst, bits_per_second / 8 * kBurstSeconds);
  run({"tc", "qdisc", "add", "dev", device, "root", "tbf", "rate",
       fmt::format("{:.0f}bit", bits_per_second), "burst", fmt::format("{:.0f}b", burst), "limit",
       fmt::format("{}b", kQueueBytes)});
}

}  // namespace

void EmulatedNetwork::check_supported() {
  for (const char* name : {"ip", "tc"}) (void)find(name);
  (void)make_namespace();
}

EmulatedNetwork::EmulatedNetwork(int hosts, double bits_per_second) : switch_(make_namespace()) {
  {
    const Inside inside(switch_);
    run({"ip", "link", "add", "bridge", "type", "bridge"});
    run({"ip", "link", "set", "bridge", "up"});
  }
  for (int host = 0; host < hosts; ++host) {
    hosts_.push_back(make_namespace());
    connect(host, bits_per_second);
  }
}

// Each end of a link limits what it sends.
void EmulatedNetwork::connect(int host, double bits_per_second) const {
  const FileDescriptor& space = hosts_[static_cast<std::size_t>(host)];
  {
    const Inside inside(switch_);
    const std::string port = fmt::format("port{}", host);
    run({"ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
         fmt::format("/proc/{}/fd/{}", getpid(), space.get())});
    run({"ip", "link", "set", port, "master", "bridge", "up"});
    limit_rate(port, bits_per_second);
  }
  const Inside inside(space);
  run({"ip", "link", "set", "lo", "up"});
  run({"ip", "address", "add", address_of(host) + "/16", "dev", "eth0"});
  run({"ip", "link", "set", "eth0", "up"});
  limit_rate("eth0", bits_per_second);
}

net::Listener EmulatedNetwork::listen(int host) const {
  const Inside inside(hosts_[static_cast<std::size_t>(host)]);
  return net::Listener::bind({address_of(host), 0}).or_throw();
}

void EmulatedNetwork::enter(int host) const {
  enter_namespace(hosts_[static_cast<std::size_t>(host)]);
}

}  // namespace tilewright::bench
