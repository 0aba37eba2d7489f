// Which CPUs a local worker runs on.
#pragma once

#include <vector>

namespace tilewright::local {

// The CPUs this process may use, in rising order.
std::vector<int> allowed_cpus();

// The share of worker `index` of `workers`: neighbours in the list, as even as they divide. With
// fewer CPUs than workers they share all of them, and the answer is empty: no binding.
std::vector<int> share_of_cpus(const std::vector<int>& cpus, int index, int workers);

}  // namespace tilewright::local
