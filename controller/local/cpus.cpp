#include "controller/local/cpus.h"

#include <sched.h>

#include "common/base/check.h"

namespace tilewright::local {

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  // Fails only on machines with more than CPU_SETSIZE (1024) CPUs; workers are not bound there.
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> cpu_slice(const std::vector<int>& cpus, int index, int workers) {
  TW_CHECK(workers > 0 && index >= 0, "worker {} of {}", index, workers);
  const int count = static_cast<int>(cpus.size());
  // A job that was scaled up has indices beyond `workers`; they share CPUs with earlier workers.
  const int slice = index % workers;
  if (count < workers) return {};
  return {cpus.begin() + slice * count / workers, cpus.begin() + (slice + 1) * count / workers};
}

}  // namespace tilewright::local
