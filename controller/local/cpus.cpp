#include "controller/local/cpus.h"

#include <sched.h>

#include "common/base/check.h"

namespace tilewright::local {

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  // Fails only on machines of more than CPU_SETSIZE (1024) CPUs: then nothing is bound.
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> share_of_cpus(const std::vector<int>& cpus, int index, int workers) {
  TW_CHECK(workers > 0 && index >= 0, "worker {} of {}", index, workers);
  const int count = static_cast<int>(cpus.size());
  // An index beyond the nominal number (the job was scaled up since) shares with an earlier one.
  const int place = index % workers;
  if (count < workers) return {};
  return {cpus.begin() + place * count / workers, cpus.begin() + (place + 1) * count / workers};
}

}  // namespace tilewright::local
