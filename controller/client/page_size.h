// The number of objects per page of a list. Users decide how large their objects are, so a page is
// bounded by its bytes: its number of objects halves until it fits, and grows back.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tilewright::kube {

// The limit of a page and of an event of a watch. One object always fits: etcd refuses requests
// above 1.5 MiB, and JSON writes a byte of a stored object as at most six (\u003c).
inline constexpr std::size_t kMaxPageBytes = 16 << 20;

class PageSize {
 public:
  // `most`: objects per page; 0: no paging.
  explicit PageSize(int most) : most_(most), limit_(most) {}

  int limit() const { return limit_; }

  // The page was larger than kMaxPageBytes. False if it cannot have fewer objects.
  bool shrink() {
    if (limit_ <= 1) return false;
    limit_ /= 2;
    return true;
  }
  // A page of this size has arrived. Doubles the limit if the next page is then unlikely to be too
  // large.
  void arrived(std::size_t bytes) {
    if (bytes <= kMaxPageBytes / 4) limit_ = std::min(limit_ * 2, most_);
  }

 private:
  int most_;
  int limit_;
};

}  // namespace tilewright::kube
