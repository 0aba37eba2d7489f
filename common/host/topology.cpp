#include "common/host/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "common/host/cpu_list.h"

namespace tilewright::host {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxListBytes = std::size_t{1} << 16;
constexpr int kMaxNode = 1023;  // MAX_NUMNODES of Linux on x86
constexpr int kMaxPackage = kMaxCpu;

// The list in the first line of a file; empty if the file is missing or holds no list.
std::vector<int> read_list(const fs::path& path) {
  std::ifstream in(path);
  std::string text(kMaxListBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return parse_cpu_list(std::string_view(text).substr(0, text.find('\n')));
}

int read_number(const fs::path& path, int most, int otherwise) {
  std::ifstream in(path);
  int number = 0;
  return in >> number && number >= 0 && number <= most ? number : otherwise;
}

// The node of each CPU; empty if a CPU is in two nodes.
std::map<int, int> read_nodes(const fs::path& directory, const std::vector<int>& nodes) {
  std::map<int, int> node_of;
  for (const int node : nodes) {
    if (node > kMaxNode) return {};
    for (const int cpu : read_list(directory / fmt::format("node{}", node) / "cpulist"))
      if (!node_of.emplace(cpu, node).second) return {};
  }
  return node_of;
}

}  // namespace

const Cpu* Topology::find(int id) const {
  const auto found = std::ranges::lower_bound(cpus, id, {}, &Cpu::id);
  return found != cpus.end() && found->id == id ? &*found : nullptr;
}

bool Topology::has_memory(int node) const { return std::ranges::binary_search(memory_nodes, node); }

Topology read_topology(const std::vector<int>& allowed, const fs::path& root) {
  const fs::path cpu_directory = root / "sys/devices/system/cpu";
  const fs::path node_directory = root / "sys/devices/system/node";
  std::set<int> online(allowed.begin(), allowed.end());
  for (const int cpu : read_list(cpu_directory / "online")) online.insert(cpu);

  const std::vector<int> nodes = read_list(node_directory / "online");
  const std::map<int, int> node_of = read_nodes(node_directory, nodes);
  const bool described =
      std::ranges::all_of(online, [&](int cpu) { return node_of.contains(cpu); });

  Topology topology;
  for (const int id : online) {
    const fs::path directory = cpu_directory / fmt::format("cpu{}", id) / "topology";
    std::vector<int> siblings = read_list(directory / "thread_siblings_list");
    if (!std::ranges::binary_search(siblings, id)) siblings = {id};
    topology.cpus.push_back({id, siblings.front(),
                             read_number(directory / "physical_package_id", kMaxPackage, 0),
                             described ? node_of.at(id) : 0});
  }
  topology.memory_nodes = described ? read_list(node_directory / "has_memory") : std::vector{0};
  if (topology.memory_nodes.empty()) topology.memory_nodes = nodes;  // no such file: Linux < 3.6
  return topology;
}

}  // namespace tilewright::host
