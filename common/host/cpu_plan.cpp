#include "common/host/cpu_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "common/base/check.h"
#include "common/base/strings.h"
#include "common/host/cpu_list.h"

namespace tilewright::host {
namespace {

// A core with allowed CPUs.
struct Core {
  int node = 0;
  std::vector<int> cpus;  // the allowed ones, ascending
};
using Cores = std::vector<Core>;

std::string counted(int n, std::string_view noun) {
  return tilewright::counted(static_cast<std::size_t>(n), noun);
}

// Part `index` of `parts` consecutive ones, as equal as possible.
template <typename Element>
std::vector<Element> part_of(const std::vector<Element>& whole, std::size_t index,
                             std::size_t parts) {
  const auto at = [&](std::size_t i) {
    return whole.begin() + static_cast<std::ptrdiff_t>(i * whole.size() / parts);
  };
  return {at(index), at(index + 1)};
}

Cores joined(const std::vector<Cores>& nodes) {
  Cores all;
  for (const Cores& node : nodes) all.insert(all.end(), node.begin(), node.end());
  return all;
}

class Planner {
 public:
  explicit Planner(const Host& host) : host_(host) {
    TW_CHECK(!host.allowed.empty(), "no allowed CPU");
    // By package, then node, so that processes with consecutive ranks are near each other.
    std::map<std::tuple<int, int, int>, Core> cores;
    std::map<int, int> package_of_node;
    for (const int id : host.allowed) {
      const Cpu* cpu = host.topology.find(id);
      TW_CHECK(cpu != nullptr, "CPU {} is allowed but not in the topology", id);
      const int package = package_of_node.emplace(cpu->node, cpu->package).first->second;
      Core& core = cores[{package, cpu->node, cpu->core}];
      core.node = cpu->node;
      core.cpus.push_back(id);
    }
    for (auto& [key, core] : cores) {
      if (nodes_.empty() || nodes_.back().front().node != core.node) nodes_.emplace_back();
      nodes_.back().push_back(std::move(core));
      ++cores_;
    }
    if (host.quota) quota_ = std::max(1, static_cast<int>(std::min(std::ceil(*host.quota), 1e6)));
  }

  CpuPlan plan(std::optional<int> requested) {
    const int n = requested ? *requested : automatic();
    TW_CHECK(n >= 1, "{} processes", n);
    for (int i = 0; i < n; ++i) plan_.processes.push_back(process(i, n));
    explain(n);
    return std::move(plan_);
  }

 private:
  bool limited() const { return quota_ < cores_; }
  std::size_t node_count() const { return nodes_.size(); }

  int automatic() {
    const int nodes = static_cast<int>(node_count());
    if (nodes == 1) {
      reason("One process: the allowed CPUs are in one NUMA node.");
      return 1;
    }
    const auto [least, most] =
        std::ranges::minmax(nodes_, {}, [](const Cores& node) { return node.size(); });
    // Processes share the work evenly, so the one with the fewest cores determines the time.
    if (2 * least.size() < most.size()) {
      reason(
          "One process: the allowed CPUs are unevenly divided over {} NUMA nodes, with {} to {} "
          "cores, and processes would share the work evenly.",
          nodes, least.size(), most.size());
      return 1;
    }
    const int per_node = static_cast<int>(most.size());
    const int needed = limited() ? (quota_ - 1) / per_node + 1 : nodes;
    if (needed < nodes) {
      reason("{}: the CPU quota is that of the cores of as many NUMA nodes; {} have allowed CPUs.",
             counted(needed, "process"), nodes);
      return needed;
    }
    reason("{} processes: one for each NUMA node with allowed CPUs.", nodes);
    return nodes;
  }

  // With at least as many processes as nodes: the number of processes on each node, so that the
  // smallest part of a node is as large as possible.
  std::vector<std::size_t> processes_by_node(int n) const {
    std::vector<std::size_t> counts(node_count(), 1);
    for (std::size_t left = static_cast<std::size_t>(n) - node_count(); left > 0; --left) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < counts.size(); ++i)
        if (nodes_[i].size() * (counts[best] + 1) > nodes_[best].size() * (counts[i] + 1)) best = i;
      ++counts[best];
    }
    return counts;
  }

  Cores cores_of(int index, int n) const {
    const auto i = static_cast<std::size_t>(index);
    const auto parts = static_cast<std::size_t>(n);
    if (parts < node_count()) {
      if (node_count() % parts == 0) return joined(part_of(nodes_, i, parts));
      return part_of(joined(nodes_), i, parts);
    }
    std::size_t first = 0;
    const std::vector<std::size_t> counts = processes_by_node(n);
    for (std::size_t node = 0;; ++node) {
      if (i < first + counts[node]) return part_of(nodes_[node], i - first, counts[node]);
      first += counts[node];
    }
  }

  ProcessPlan process(int index, int n) const {
    ProcessPlan process;
    const int share = std::max(1, quota_ / n);
    if (n > cores_) {
      process.cpus = host_.allowed;
      process.max_threads =
          std::min(share, std::max(1, static_cast<int>(host_.allowed.size()) / n));
      return process;
    }
    const Cores own = cores_of(index, n);
    std::set<int> own_nodes;
    for (const Core& core : own) {
      own_nodes.insert(core.node);
      process.cpus.insert(process.cpus.end(), core.cpus.begin(), core.cpus.end());
    }
    process.threads = std::min(share, static_cast<int>(own.size()));
    process.max_threads = std::min(share, static_cast<int>(process.cpus.size()));
    if (limited()) {
      process.cpus.clear();
      for (const Cores& node : nodes_)
        if (n == 1 || own_nodes.contains(node.front().node))
          for (const Core& core : node)
            process.cpus.insert(process.cpus.end(), core.cpus.begin(), core.cpus.end());
    } else if (process.threads == static_cast<int>(own.size())) {
      for (const Core& core : own) process.thread_cpus.push_back(core.cpus.front());
    }
    std::ranges::sort(process.cpus);
    if (host_.topology.memory_nodes.size() > 1 && (own_nodes.size() == 1 || !limited()) &&
        std::ranges::all_of(own_nodes, [&](int node) { return host_.topology.has_memory(node); }))
      process.memory_nodes.assign(own_nodes.begin(), own_nodes.end());
    return process;
  }

  void explain(int n) {
    const int allowed = static_cast<int>(host_.allowed.size());
    if (n > cores_) {
      reason("The {} processes share all CPUs: there {} only {}.", n, cores_ == 1 ? "is" : "are",
             counted(cores_, "core"));
    } else if (static_cast<std::size_t>(n) < node_count() && !limited()) {
      reason(
          "The CPUs and the memory of a process are on several NUMA nodes: there are {} nodes "
          "and {}.",
          node_count(), counted(n, "process"));
    }
    if (limited()) {
      reason(
          "The CPU quota of {:g} CPUs allows {} in total. The kernel moves {}, because other "
          "programs may run on the same CPUs.",
          *host_.quota, counted(quota_, "thread"), quota_ == 1 ? "it" : "them");
    }
    if (cores_ < allowed) {
      reason(
          "The {} allowed CPUs are hyper-threads of {}; a core runs one thread, because its "
          "hyper-threads share its multiply units.",
          allowed, counted(cores_, "core"));
    }
    explain_siblings();
    for (const Cores& node : nodes_) {
      if (host_.topology.has_memory(node.front().node)) continue;
      reason("NUMA node {} has no memory; the kernel uses that of the nearest node.",
             node.front().node);
    }
    const auto [least, most] =
        std::ranges::minmax(plan_.processes, {}, [](const ProcessPlan& p) { return p.threads; });
    if (least.threads < most.threads) {
      reason(
          "Processes have {} to {} threads; the work is divided evenly, so the smallest one "
          "determines the time of a step.",
          least.threads, most.threads);
    }
  }

  // Cores that other programs may use through hyper-threads that this process may not use.
  void explain_siblings() {
    std::vector<int> own, others;
    std::set<int> cores;
    for (const int id : host_.allowed) cores.insert(host_.topology.find(id)->core);
    std::set<int> shared;
    for (const Cpu& cpu : host_.topology.cpus) {
      if (!cores.contains(cpu.core) || std::ranges::binary_search(host_.allowed, cpu.id)) continue;
      others.push_back(cpu.id);
      shared.insert(cpu.core);
    }
    for (const int id : host_.allowed)
      if (shared.contains(host_.topology.find(id)->core)) own.push_back(id);
    if (others.empty()) return;
    reason(
        "CPUs {} share their cores with CPUs {}, which this process may not use; programs "
        "there slow it down.",
        format_cpu_list(own), format_cpu_list(others));
  }

  template <typename... Values>
  void reason(fmt::format_string<Values...> format, Values&&... values) {
    plan_.reasons.push_back(fmt::format(format, std::forward<Values>(values)...));
  }

  const Host& host_;
  std::vector<Cores> nodes_;  // by package and number
  int cores_ = 0;
  int quota_ = INT_MAX;  // whole threads
  CpuPlan plan_;
};

}  // namespace

const ProcessPlan& CpuPlan::of(int local_rank) const {
  TW_CHECK(local_rank >= 0 && !processes.empty(), "local rank {}", local_rank);
  return processes[static_cast<std::size_t>(local_rank) % processes.size()];
}

CpuPlan plan_cpus(const Host& host, std::optional<int> processes) {
  return Planner(host).plan(processes);
}

}  // namespace tilewright::host
