// Runs `tilewright controller` as a process and measures its CPU time, memory and requests.
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
  // Returns when /readyz reports that the caches are filled.
  OperatorProcess(const testing::ControlPlane& control_plane, const std::string& namespace_name);

  double seconds_to_ready() const { return seconds_to_ready_; }
  double cpu_seconds() const;
  double resident_mib() const;
  double peak_mib() const;
  // Requests so far by verb and resource ("create pods"), without watches, lists and Lease
  // requests.
  std::map<std::string, std::uint64_t> requests() const;
  // Number of reconciles so far.
  std::uint64_t reconciles() const;

 private:
  std::string get(int port, const std::string& path) const;

  std::optional<ChildProcess> process_;
  int metrics_port_ = 0;
  double seconds_to_ready_ = 0;
};

}  // namespace tilewright::bench
