// A table of kernels with their share of a step, as text, JSON and an SVG bar chart.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "worker/bench/recorder.h"

namespace tilewright::bench {

struct Profile {
  std::string title;                // of the SVG: workload, CPU, instruction set, threads
  std::vector<KernelTime> kernels;  // per step
  double seconds = 0;               // of the whole step, in the same steps
  double peak_gflops = 0;

  double other_seconds() const;  // outside kernels
  void sort_by_time();
  // One object per kernel, the last one "other".
  nlohmann::ordered_json to_json() const;
  std::string to_text() const;  // for a terminal, one line per kernel
  std::string to_svg() const;
};

}  // namespace tilewright::bench
