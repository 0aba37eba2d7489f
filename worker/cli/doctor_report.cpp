#include "worker/cli/doctor_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "common/base/strings.h"
#include "common/host/cpu_list.h"

namespace tilewright::cli {
namespace {

constexpr std::size_t kMostPids = 16;  // in a line

std::string describe_nodes(const host::Host& host) {
  std::map<int, std::vector<int>> nodes;
  for (const int id : host.allowed) nodes[host.topology.find(id)->node].push_back(id);
  std::string text;
  for (const auto& [node, cpus] : nodes)
    text += fmt::format("{}node {}: CPUs {}", text.empty() ? "" : "; ", node,
                        host::format_cpu_list(cpus));
  return text;
}

std::string describe_process(const host::ProcessPlan& process) {
  std::string text =
      process.thread_cpus.empty()
          ? fmt::format("{}, not bound to cores",
                        counted(static_cast<std::size_t>(process.threads), "thread"))
          : fmt::format("{} on CPUs {}", counted(process.thread_cpus.size(), "thread"),
                        host::format_cpu_list(process.thread_cpus));
  text += fmt::format("; may use CPUs {}", host::format_cpu_list(process.cpus));
  if (!process.memory_nodes.empty())
    text += fmt::format("; memory of node {}", host::format_cpu_list(process.memory_nodes));
  return text;
}

std::string describe_siblings(const std::vector<host::SiblingProcess>& siblings) {
  if (siblings.empty()) return "none";
  std::set<int> shared;
  std::vector<pid_t> pids;
  for (const host::SiblingProcess& sibling : siblings) {
    shared.insert(sibling.shared_cpus.begin(), sibling.shared_cpus.end());
    if (pids.size() < kMostPids) pids.push_back(sibling.pid);
  }
  return fmt::format("{} on CPUs {} (pid {}{}), which slow{} down a training here",
                     counted(siblings.size(), "process"),
                     host::format_cpu_list({shared.begin(), shared.end()}), fmt::join(pids, ", "),
                     pids.size() < siblings.size() ? ", ..." : "", siblings.size() == 1 ? "s" : "");
}

}  // namespace

std::vector<DoctorLine> describe_cpus(const DoctorFindings& findings) {
  const host::Host& host = findings.host;
  std::set<int> cores;
  for (const int id : host.allowed) cores.insert(host.topology.find(id)->core);
  const host::CpuPlan plan = host::plan_cpus(host, std::nullopt);

  std::vector<DoctorLine> lines;
  const auto add = [&](std::string what, std::string value) {
    lines.emplace_back(std::move(what), std::move(value));
  };
  if (std::string missing = runtime::describe_missing_amx(findings.amx); !missing.empty())
    add("AMX", std::move(missing));
  add("cores", fmt::format("{} with {}", counted(cores.size(), "physical core"),
                           counted(host.allowed.size(), "allowed CPU")));
  add("allowed CPUs", host::format_cpu_list(host.allowed));
  add("NUMA nodes", describe_nodes(host));
  add("CPU quota", host.quota ? fmt::format("{:g} CPUs", *host.quota) : "none");
  add("other trainings", describe_siblings(findings.siblings));
  if (findings.huge_pages.find("[never]") != std::string::npos)
    add("huge pages",
        "switched off in /sys/kernel/mm/transparent_hugepage/enabled; with madvise a "
        "training uses them");
  add("processes", fmt::format("{} with --nproc-per-node auto", plan.processes.size()));
  for (std::size_t rank = 0; rank < plan.processes.size(); ++rank)
    add(fmt::format("  process {}", rank), describe_process(plan.processes[rank]));
  for (const std::string& reason : plan.reasons) add("  reason", reason);
  add("threads per process", fmt::format("{}", plan.of(0).threads));
  return lines;
}

}  // namespace tilewright::cli
