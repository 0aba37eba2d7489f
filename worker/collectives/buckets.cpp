#include "worker/collectives/buckets.h"

#include <algorithm>

namespace tilewright::collectives {

void split_into_buckets(std::int64_t count, std::vector<runtime::Range>& buckets) {
  buckets.clear();
  for (std::int64_t at = 0; at < count; at += kBucketElements) {
    buckets.push_back({at, std::min(count, at + kBucketElements)});
  }
}

}  // namespace tilewright::collectives
