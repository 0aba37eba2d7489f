// Named places at which a test may kill or stop a rank.
#pragma once

#include <functional>

namespace tilewright::collectives {

// Hit once a bucket, on the thread that does the exchange:
//   reduce_scatter.before_send  the bucket was started, nothing of it is sent
//   reduce_scatter.after_send   all partial sums of the bucket are sent
//   all_gather.before_send      the first piece of this rank's share is summed, nothing of it sent
//   bucket.done                 the sum of the bucket is complete on this rank
struct FaultPoints {
  std::function<void(const char* name)> hook;  // empty: nothing happens
  void hit(const char* name) const {
    if (hook) hook(name);
  }
};

}  // namespace tilewright::collectives
