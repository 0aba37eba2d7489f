// Chooses the CPUs of each local worker.
#pragma once

#include <vector>

namespace tilewright::local {

// The CPUs that this process may use, in ascending order; empty if they are unknown.
std::vector<int> allowed_cpus();

// The CPUs of worker `index` of `workers`: consecutive entries of `cpus`, divided as evenly as
// possible. Returns an empty list, which means no binding, if there are fewer CPUs than workers.
std::vector<int> cpu_slice(const std::vector<int>& cpus, int index, int workers);

}  // namespace tilewright::local
