// Named points in the all-reduce at which a test can kill or stop a rank.
#pragma once

#include <functional>

namespace tilewright::collectives {

// Each point is hit once per bucket, on the thread that communicates:
//   reduce_scatter.before_send  the bucket is started; nothing of it is sent
//   reduce_scatter.after_send   all partial sums of the bucket are sent
//   all_gather.before_send      this rank's slice of the first chunk is summed; none of it is sent
//   bucket.done                 the sum of the bucket is complete on this rank
struct FaultPoints {
  std::function<void(const char* name)> hook;  // may be empty
  void hit(const char* name) const {
    if (hook) hook(name);
  }
};

}  // namespace tilewright::collectives
