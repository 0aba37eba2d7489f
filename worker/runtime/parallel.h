// Loops over a thread pool whose bodies may throw.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>

#include "worker/runtime/thread_pool.h"

namespace tilewright::runtime {

// Calls body(i) for every i in [0, count) on the threads of `pool`; null: on this thread. If bodies
// throw, the exception of the lowest i is thrown after the loop, so that a failure does not depend
// on the number of threads.
template <typename Body>
void for_each_index(ThreadPool* pool, std::int64_t count, Body&& body) {
  if (pool == nullptr) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::mutex mutex;
  std::exception_ptr failure;
  std::int64_t failed = count;
  pool->run(count, [&](std::int64_t i, int) {
    try {
      body(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (i < failed) {
        failed = i;
        failure = std::current_exception();
      }
    }
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tilewright::runtime
