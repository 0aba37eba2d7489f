// `tilewright-worker doctor`: what this CPU and cgroup allow, and what a training will therefore
// do.
#include <cstdio>

#include "common/base/text.h"
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
  std::string isas;
  for (const runtime::Isa each : cpu.isas) {
    isas += (isas.empty() ? "" : ", ") + std::string(runtime::name(each));
  }
  const int threads = std::min(cpu.physical_cores, cpu.usable_cpus);
  runtime::ThreadPool pool(threads);
  const auto line = [](const char* what, const std::string& value) {
    std::printf("%-22s %s\n", what, value.c_str());
  };
  line("CPU", cpu.model);
  line("instruction sets", isas);
  line("will compute with",
       std::string(runtime::name(isa)) + (forced.empty() ? "" : " (TILEWRIGHT_ISA)"));
  line("cores", fmt::format("{} physical, {} CPUs usable under affinity and cgroup quota",
                            cpu.physical_cores, cpu.usable_cpus));
  line("allowed CPUs", cpu.allowed);
  line("threads a process", fmt::format("{}", threads));
  line("bf16 ceiling",
       fmt::format("{:.0f} GFLOP/s", kernels::measure_peak_gflops(isa, true, pool)));
  line("fp32 ceiling",
       fmt::format("{:.0f} GFLOP/s", kernels::measure_peak_gflops(isa, false, pool)));
  line("memory available", fmt::format("{} MiB", runtime::available_memory() >> 20));
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("doctor", "what this machine allows, and what a training will do with it");
  command->callback([&exit_code] {
    run_doctor();
    exit_code = 0;
  });
}

}  // namespace tilewright::cli
