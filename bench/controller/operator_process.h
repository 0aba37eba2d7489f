// `tilewright controller` as a process that is looked at from outside: what it costs.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/process/child_process.h"
#include "tests/support/control_plane.h"

namespace tilewright::bench {

class OperatorProcess {
 public:
  // Returns when /readyz says that its caches are filled.
  OperatorProcess(const testing::ControlPlane& control_plane, const std::string& name_space);

  double seconds_to_ready() const { return seconds_to_ready_; }
  double cpu_seconds() const;
  double resident_mib() const;
  double peak_mib() const;
  // Requests so far, by verb and resource ("create pods"); watches, lists and the lease's left out.
  std::map<std::string, std::uint64_t> requests() const;
  // At jobs, so far.
  std::uint64_t looks() const;

 private:
  std::string get(int port, const std::string& path) const;

  std::optional<ChildProcess> process_;
  int http_port_ = 0;
  double seconds_to_ready_ = 0;
};

}  // namespace tilewright::bench
