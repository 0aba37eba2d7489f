#include "worker/bench/memory_rate.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "worker/bench/statistics.h"
#include "worker/runtime/memory.h"

namespace tilewright::bench {

double copy_gigabytes_per_second(runtime::ThreadPool& pool, std::int64_t bytes_each,
                                 int repetitions) {
  const auto bytes = static_cast<std::size_t>(bytes_each);
  const std::size_t total = bytes * static_cast<std::size_t>(pool.size());
  runtime::Block from(total);
  runtime::Block to(total);
  // Pages that no one has written share one page of zeros, which stays in the cache.
  const auto write = [&](std::int64_t part, int) {
    std::memset(from.data() + static_cast<std::size_t>(part) * bytes, 1, bytes);
  };
  const auto copy = [&](std::int64_t part, int) {
    const std::size_t at = static_cast<std::size_t>(part) * bytes;
    std::memcpy(to.data() + at, from.data() + at, bytes);
  };
  pool.run(pool.size(), write);
  pool.run(pool.size(), copy);
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(repetitions));
  for (int i = 0; i < repetitions; ++i)
    times.push_back(seconds([&] { pool.run(pool.size(), copy); }));
  return 2e-9 * static_cast<double>(total) / median(times);
}

std::int64_t last_cache_bytes() {
  const std::int64_t l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::max<std::int64_t>(0, l3 > 0 ? l3 : sysconf(_SC_LEVEL2_CACHE_SIZE));
}

}  // namespace tilewright::bench
