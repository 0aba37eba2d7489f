// The lines of `tilewright-worker doctor`.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/host/cpu_plan.h"
#include "common/host/sibling_processes.h"
#include "worker/runtime/cpu.h"

namespace tilewright::cli {

// What this machine provides for a training.
struct DoctorFindings {
  runtime::CpuInfo cpu;
  runtime::AmxSupport amx;
  host::Host host;
  std::vector<host::SiblingProcess> siblings;  // other trainings on these CPUs
  std::string huge_pages;  // the kernel's setting: "always [madvise] never"; empty: unknown
};

using DoctorLine = std::pair<std::string, std::string>;  // what, value

// The CPUs and the plan of the processes that `agent --nproc-per-node auto` starts.
std::vector<DoctorLine> describe_cpus(const DoctorFindings& findings);

}  // namespace tilewright::cli
