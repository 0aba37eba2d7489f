#include "worker/collectives/buckets.h"

#include <algorithm>

namespace tilewright::collectives {

void split_into_buckets(std::int64_t count, std::int64_t boundary,
                        std::vector<runtime::Range>& buckets) {
  buckets.clear();
  for (std::int64_t begin = 0; begin < count; begin = buckets.back().end) {
    const std::int64_t end = std::min(count, begin + kBucketElements);
    buckets.push_back({begin, begin < boundary ? std::min(end, boundary) : end});
  }
}

}  // namespace tilewright::collectives
