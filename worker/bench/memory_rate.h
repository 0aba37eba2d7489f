// The memory copy bandwidth and the size of the last-level cache, which bound the speed of kernels
// without arithmetic.
#pragma once

#include <cstdint>

#include "worker/runtime/thread_pool.h"

namespace tilewright::bench {

// Bytes read and written per second when all threads of the pool copy memory, each its own blocks
// of `bytes_each`: the median of `repetitions`.
double copy_gigabytes_per_second(runtime::ThreadPool& pool, std::int64_t bytes_each,
                                 int repetitions);

// Of one L3 domain, as the CPU reports it; without L3 of L2; 0: unknown.
std::int64_t last_cache_bytes();

}  // namespace tilewright::bench
