// How many requests were sent, by verb and resource: for the metrics and for the tests that hold a
// job to its number of requests.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace tilewright::kube {

// Thread-safe. Attempts count one by one.
class RequestCounter {
 public:
  using Key = std::pair<std::string, std::string>;  // {"create", "pods"}, {"update", "pods/status"}

  void count(const std::string& verb, const std::string& resource) {
    const std::lock_guard lock(mutex_);
    ++counts_[{verb, resource}];
  }
  std::map<Key, std::uint64_t> counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<Key, std::uint64_t> counts_;
};

}  // namespace tilewright::kube
