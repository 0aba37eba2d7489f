// How many requests were sent, by verb, resource and answer: for the metrics and for the tests that
// hold a job to its number of requests.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

namespace tilewright::kube {

// Thread-safe. Attempts count one by one, each when its answer begins.
class RequestCounter {
 public:
  static constexpr const char* kNoAnswer = "none";  // refused, cut, given up

  struct Key {
    std::string verb;      // create, update
    std::string resource;  // pods, pods/status
    std::string code;      // of HTTP: 201; or kNoAnswer
    bool operator==(const Key&) const = default;
    bool operator<(const Key& other) const {
      return std::tie(verb, resource, code) < std::tie(other.verb, other.resource, other.code);
    }
  };

  void count_answered(const std::string& verb, const std::string& resource, int status) {
    count({verb, resource, fmt::to_string(status)});
  }
  void count_unanswered(const std::string& verb, const std::string& resource) {
    count({verb, resource, kNoAnswer});
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
