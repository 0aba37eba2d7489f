// ObjectMeta as far as the operator reads or writes it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace tilewright::api {

// A moment in RFC 3339 on the wire; whole seconds after a round trip.
using Timestamp = std::optional<WallTime>;

struct ObjectMeta {
  std::string name;
  std::string generate_name;
  std::string namespace_name;  // metadata.namespace; empty: the caller's
  std::string uid;
  std::string resource_version;
  std::int64_t generation = 0;
  Timestamp creation_timestamp;
  Timestamp deletion_timestamp;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  std::vector<std::string> finalizers;
  nlohmann::json owner_references;  // null, or the array as it came

  bool operator==(const ObjectMeta&) const = default;
};

}  // namespace tilewright::api
