// Topologies of machines on which trainings run, in a short form from which a test writes the files
// that Linux has on such a machine in /sys/devices/system.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/host/cpu_list.h"
#include "common/host/host.h"
#include "tests/support/paths.h"

namespace tilewright::host {

// Lines of the short form:
//   online LIST               online CPUs; the others up to the last one of a package are offline
//   package NUMBER LIST       CPUs of a socket
//   node NUMBER LIST [MEMORY] CPUs of a NUMA node, "-" for none; MEMORY: "memory" or "no-memory"
//   siblings LIST LIST        the n-th CPUs of the two lists are hyper-threads of one core

// A virtual machine without hyper-threads, as a small laptop or CI runner.
inline constexpr const char* kTwoCpus = R"(
online 0-1
package 0 0-1
node 0 0-1
)";

// 16xlarge of a cloud's Sapphire Rapids family: one socket, 32 cores, 64 hyper-threads.
inline constexpr const char* k16xlarge = R"(
online 0-63
package 0 0-63
node 0 0-63
siblings 0-31 32-63
)";

// Two Xeon Platinum 8480+ of 56 cores, each cut into four clusters (SNC4).
inline constexpr const char* kSnc4 = R"(
online 0-111
package 0 0-55
package 1 56-111
node 0 0-13
node 1 14-27
node 2 28-41
node 3 42-55
node 4 56-69
node 5 70-83
node 6 84-97
node 7 98-111
)";

// The same machine with hyper-threads.
inline constexpr const char* kSnc4Threads = R"(
online 0-223
package 0 0-55,112-167
package 1 56-111,168-223
node 0 0-13,112-125
node 1 14-27,126-139
node 2 28-41,140-153
node 3 42-55,154-167
node 4 56-69,168-181
node 5 70-83,182-195
node 6 84-97,196-209
node 7 98-111,210-223
siblings 0-111 112-223
)";

// Two Xeon Platinum 8490H of 60 cores with hyper-threads: 240 CPUs.
inline constexpr const char* k240Cpus = R"(
online 0-239
package 0 0-59,120-179
package 1 60-119,180-239
node 0 0-59,120-179
node 1 60-119,180-239
siblings 0-119 120-239
)";

// Two sockets of which the second has no memory module, and a node of attached memory (CXL).
inline constexpr const char* kMemorylessNode = R"(
online 0-15
package 0 0-7
package 1 8-15
node 0 0-7 memory
node 1 8-15 no-memory
node 2 - memory
)";

// Four cores with hyper-threads; CPUs 2 and 5 were taken offline.
inline constexpr const char* kOfflineCpus = R"(
online 0-1,3-4,6-7
package 0 0-7
node 0 0-1,3-4,6-7
siblings 0-3 4-7
)";

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// Writes the files of the topology below `root`.
inline void write_sysfs(const std::filesystem::path& root, const std::string& text) {
  const auto cpus = root / "sys/devices/system/cpu";
  const auto nodes = root / "sys/devices/system/node";
  std::map<int, std::vector<int>> siblings;
  std::map<int, int> package;
  std::vector<int> online, node_numbers, with_memory;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string kind, first, second, third;
    words >> kind >> first >> second >> third;
    if (kind == "online") {
      online = parse_cpu_list(first);
      write_file(cpus / "online", first + "\n");
    } else if (kind == "package") {
      for (const int cpu : parse_cpu_list(second)) package[cpu] = std::stoi(first);
    } else if (kind == "node") {
      const std::string list = second == "-" ? "" : second;
      write_file(nodes / ("node" + first) / "cpulist", list + "\n");
      node_numbers.push_back(std::stoi(first));
      if (third != "no-memory") with_memory.push_back(std::stoi(first));
    } else if (kind == "siblings") {
      const std::vector<int> one = parse_cpu_list(first), two = parse_cpu_list(second);
      ASSERT_EQ(one.size(), two.size());
      for (std::size_t i = 0; i < one.size(); ++i)
        siblings[one[i]] = siblings[two[i]] = {one[i], two[i]};
    } else {
      ASSERT_EQ(kind, "");
    }
  }
  write_file(nodes / "online", format_cpu_list(node_numbers) + "\n");
  write_file(nodes / "has_memory", format_cpu_list(with_memory) + "\n");
  for (const auto& [cpu, socket] : package) {
    const auto directory = cpus / fmt::format("cpu{}", cpu);
    std::filesystem::create_directories(directory);
    if (std::ranges::find(online, cpu) == online.end()) continue;  // Linux removes its topology
    std::vector<int> list = siblings.contains(cpu) ? siblings[cpu] : std::vector{cpu};
    std::erase_if(list, [&](int s) { return std::ranges::find(online, s) == online.end(); });
    write_file(directory / "topology/thread_siblings_list", format_cpu_list(list) + "\n");
    write_file(directory / "topology/physical_package_id", fmt::format("{}\n", socket));
  }
}

// As the files of a machine describe it. Read once: some tests need hundreds of files often.
inline const Topology& saved_topology(const std::string& text) {
  static std::map<std::string, Topology> known;
  const auto found = known.find(text);
  if (found != known.end()) return found->second;
  const testing::TemporaryDirectory root;
  write_sysfs(root.path(), text);
  const std::string online = testing::read_text(root.path() / "sys/devices/system/cpu/online");
  return known[text] = read_topology({parse_cpu_list(online.substr(0, online.find('\n'))).front()},
                                     root.path());
}

// The host of a process that may use `allowed` (empty: all online CPUs) of this topology.
inline Host saved_host(const std::string& text, const std::string& allowed = "",
                       std::optional<double> quota = std::nullopt) {
  Host host{saved_topology(text), parse_cpu_list(allowed), quota};
  if (allowed.empty()) {
    for (const Cpu& cpu : host.topology.cpus) host.allowed.push_back(cpu.id);
  }
  return host;
}

}  // namespace tilewright::host
