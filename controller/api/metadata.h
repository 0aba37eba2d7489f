// The part of ObjectMeta that the operator reads or writes.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace tilewright::api {

// In JSON an RFC 3339 string with a resolution of one second.
using Timestamp = std::optional<WallTime>;

struct ObjectMeta {
  std::string name;
  std::string generate_name;
  std::string namespace_name;  // empty: the default namespace of the caller
  std::string uid;
  std::string resource_version;
  std::int64_t generation = 0;
  Timestamp creation_timestamp;
  Timestamp deletion_timestamp;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  std::vector<std::string> finalizers;
  nlohmann::json owner_references;  // null, or the array of the object

  bool operator==(const ObjectMeta&) const = default;
};

// For objects that the API server has not made yet.
inline constexpr const char* kSampleUid = "00000000-0000-0000-0000-000000000000";
// The name, or one that the API server could make of generateName.
inline std::string sample_name(const ObjectMeta& metadata) {
  return metadata.name.empty() ? metadata.generate_name + "xxxxx" : metadata.name;
}

}  // namespace tilewright::api
