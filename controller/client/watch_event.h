// Parses one event of a watch.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "controller/client/api_error.h"
#include "controller/client/response_json.h"

namespace tilewright::kube {

enum class EventType { kAdded, kModified, kDeleted, kBookmark };

struct WatchEvent {
  EventType type = EventType::kAdded;
  nlohmann::json object;         // of a bookmark: little more than resourceVersion
  std::string resource_version;  // to resume the watch from
};

// Returns the Status of an ERROR event as an error; ErrorKind::kGone requires a new list.
ApiResult<WatchEvent> parse_watch_event(std::string_view text,
                                        FieldFilter filter = exclude_managed_fields);

}  // namespace tilewright::kube
