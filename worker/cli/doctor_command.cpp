// `tilewright-worker doctor`: prints the CPU, the limits of cgroup and affinity, and what a
// training will use of them.
#include <cstdio>

#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "worker/cli/commands.h"
#include "worker/kernels/gemm/peak.h"
#include "worker/runtime/cpu.h"
#include "worker/runtime/memory.h"

namespace tilewright::cli {
namespace {

void run_doctor() {
  const runtime::CpuInfo cpu = runtime::detect_cpu();
  const std::string forced = environment_variable(env::kIsa);
  const runtime::Isa isa = runtime::choose_isa(cpu, forced).or_throw();
  std::string kernel_names;
  for (const runtime::Isa each : cpu.isas) {
    kernel_names += (kernel_names.empty() ? "" : ", ") + std::string(runtime::name(each));
    if (each == runtime::Isa::kRef) kernel_names += " (plain C++)";
  }
  const int threads = std::min(cpu.physical_cores, cpu.usable_cpus);
  runtime::ThreadPool pool(threads);
  const auto peak = [&](bool bf16) {
    return fmt::format("{:.0f} GFLOP/s with {} thread{}",
                       kernels::measure_peak_gflops(isa, bf16, pool), threads,
                       threads == 1 ? "" : "s");
  };
  const auto line = [](const char* what, const std::string& value) {
    std::printf("%-22s %s\n", what, value.c_str());
  };
  line("CPU", cpu.model);
  line("kernels", kernel_names);
  line("selected kernels",
       std::string(runtime::name(isa)) + (forced.empty() ? "" : " (TILEWRIGHT_ISA)"));
  line("cores", fmt::format("{} physical, {} CPUs usable under affinity and cgroup quota",
                            cpu.physical_cores, cpu.usable_cpus));
  line("allowed CPUs", cpu.cpus_allowed);
  line("threads per process", fmt::format("{}", threads));
  line("bf16 peak", peak(true));
  line("fp32 peak", peak(false));
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
