// `tilewright-worker doctor`: prints the CPU, the limits of cgroup and affinity, and what a
// training will use of them.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "worker/cli/commands.h"
#include "worker/cli/doctor_report.h"
#include "worker/kernels/gemm/peak.h"
#include "worker/runtime/available_memory.h"
#include "worker/runtime/precision.h"

namespace tilewright::cli {
namespace {

DoctorFindings find() {
  DoctorFindings findings;
  findings.cpu = runtime::detect_cpu();
  findings.amx = runtime::detect_amx();
  findings.host = host::this_host();
  findings.siblings = host::sibling_processes(
      "tilewright-worker", {"train", "eval", "predict", "bench"}, findings.host.allowed, getpid());
  std::ifstream setting("/sys/kernel/mm/transparent_hugepage/enabled");
  std::getline(setting, findings.huge_pages);
  return findings;
}

void run_doctor() {
  const DoctorFindings findings = find();
  const runtime::CpuInfo& cpu = findings.cpu;
  const std::string forced = environment_variable(env::kIsa);
  const runtime::Isa isa = runtime::choose_isa(cpu, forced).or_throw();
  std::string kernel_names;
  for (const runtime::Isa each : cpu.isas) {
    kernel_names += (kernel_names.empty() ? "" : ", ") + std::string(runtime::name(each));
    if (each == runtime::Isa::kRef) kernel_names += " (plain C++)";
  }
  const int threads = host::plan_cpus(findings.host, 1).of(0).threads;
  runtime::ThreadPool pool(threads);
  const auto peak = [&](runtime::Precision precision) {
    return fmt::format("{:.0f} GFLOP/s with {}", kernels::measure_peak_gflops(isa, precision, pool),
                       counted(static_cast<std::size_t>(threads), "thread"));
  };
  const auto line = [](const char* what, const std::string& value) {
    std::printf("%-22s %s\n", what, value.c_str());
  };
  line("CPU", cpu.model);
  line("kernels", kernel_names);
  line("selected kernels",
       std::string(runtime::name(isa)) + (forced.empty() ? "" : " (TILEWRIGHT_ISA)"));
  for (const auto& [what, value] : describe_cpus(findings)) line(what.c_str(), value);
  line("bf16 peak", peak(runtime::Precision::kBf16));
  line("fp32 peak", peak(runtime::Precision::kFp32));
  line("memory available", fmt::format("{} MiB", runtime::available_memory() >> 20));
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Show this machine's CPU and memory, and what a training will use");
  command->callback([&exit_code] {
    run_doctor();
    exit_code = 0;
  });
}

}  // namespace tilewright::cli
