// A process whose memory runs out.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace tilewright::testing {

// Limits the address space of this process to what it uses and 64 MiB more.
class LimitedMemory {
 public:
  LimitedMemory() {
    EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limited = before_;
    limited.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20);
    EXPECT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  }
  ~LimitedMemory() { setrlimit(RLIMIT_AS, &before_); }
  LimitedMemory(const LimitedMemory&) = delete;
  LimitedMemory& operator=(const LimitedMemory&) = delete;

 private:
  rlimit before_{};
};

}  // namespace tilewright::testing
