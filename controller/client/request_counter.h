// Counts requests by verb, resource and status code, for the metrics and for tests that bound the
// number of requests of a job.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

namespace tilewright::kube {

// Thread-safe. Each attempt counts, at the time its response headers arrive.
class RequestCounter {
 public:
  static constexpr const char* kNoResponse = "none";  // connection error, timeout or cancellation

  struct Key {
    std::string verb;      // create, update
    std::string resource;  // pods, pods/status
    std::string code;      // HTTP status: 201; or kNoResponse
    bool operator==(const Key&) const = default;
    bool operator<(const Key& other) const {
      return std::tie(verb, resource, code) < std::tie(other.verb, other.resource, other.code);
    }
  };

  void count_response(const std::string& verb, const std::string& resource, int status) {
    count({verb, resource, fmt::to_string(status)});
  }
  void count_no_response(const std::string& verb, const std::string& resource) {
    count({verb, resource, kNoResponse});
  }
  std::map<Key, std::uint64_t> counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  void count(Key key) {
    const std::lock_guard lock(mutex_);
    ++counts_[std::move(key)];
  }

  mutable std::mutex mutex_;
  std::map<Key, std::uint64_t> counts_;
};

}  // namespace tilewright::kube
