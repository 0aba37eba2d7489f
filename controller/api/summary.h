// The column values of `kubectl get tj.tilewright.dev`, derived from the other fields of the
// status.
#pragma once

#include <string>

#include "controller/api/status.h"

namespace tilewright::api {

// An empty string is an empty column.
struct Summary {
  std::string progress;  // 111/168
  std::string epoch;     // 5.29
  std::string quality;   // accuracy 0.8056, or loss 0.1323
  std::string speed;     // 255.8, in examples per second; only while the job runs
  std::string eta;       // 2 min 10 s; only while the job runs
  std::string ready;     // 1/2
  std::string message;   // why the job does not run, or how it ended
};

Summary summarize(const TrainJobStatus& status);

}  // namespace tilewright::api
